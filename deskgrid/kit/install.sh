#!/bin/sh
# Installs deskgrid on this PC, or updates it, and its worker as a service. It needs no internet.
set -eu

usage() {
    cat <<'END'
Usage: sh install.sh [OPTION]... [-- OPTION of deskgrid worker...]

Install deskgrid on this PC, or update it, and its worker as a service. Run it as root.

  --join FILE      The file with the lab's line. It is needed the first time, and only then.
  --python PATH    The Python to use [default: the first of python3, python3.14, ... for which this kit has wheels].
  --prefix FOLDER  Where to install [default: /opt/deskgrid]. It becomes a link to FOLDER-VERSION.
  --accounts N     How many accounts to make that tasks run as, deskgrid-task-1 and so on [default: one for each
                   processor]. With 0, tasks run as root.
  --no-service     Only install the program. A worker that runs is not restarted.
  --help           Show this text.

What follows -- are options of the worker, such as: -- --site lab3 --slots 4
END
}

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

here=$(cd "$(dirname "$0")" && pwd)
join='' python='' prefix=/opt/deskgrid accounts='' service=yes
while [ $# -gt 0 ]; do
    case $1 in
        --join | --python | --prefix | --accounts)
            [ $# -ge 2 ] || fail "$1 needs a value"
            case $1 in
                --join) join=$2 ;;
                --python) python=$2 ;;
                --prefix) prefix=${2%/} ;;
                --accounts) accounts=$2 ;;
            esac
            shift 2
            ;;
        --no-service) service=no; shift ;;
        --help | -h) usage; exit 0 ;;
        --) shift; break ;;
        *) fail "there is no option $1: see sh install.sh --help" ;;
    esac
done

[ "$(id -u)" = 0 ] || fail 'run it as root'
[ -r "$here/VERSION" ] && [ -d "$here/wheels" ] || fail "$here is no whole kit: unpack all of it"
case $prefix in /*) ;; *) fail "--prefix needs a whole path, such as /opt/deskgrid, not $prefix" ;; esac
case $accounts in *[!0-9]*) fail "--accounts needs a number, not $accounts" ;; esac
[ -z "$join" ] || [ -r "$join" ] || fail "$join cannot be read"
version=$(cat "$here/VERSION")
new=$prefix-$version
[ -L "$prefix" ] || [ ! -e "$prefix" ] || fail "$prefix is there, and not made by this script: move it away, or give --prefix"

# --- a Python for which there are wheels ------------------------------------------------------------------------------

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

if [ -n "$python" ]; then
    found=$(version_of "$python")
    [ -n "$found" ] || fail "$python is no Python that starts"
    grep -qxF "$found" "$here/PYTHONS" || fail "$python is Python $found, and this kit is for $(xargs <"$here/PYTHONS")"
else
    for each in python3 $(sort -t. -k2 -rn "$here/PYTHONS" | sed 's/^/python/'); do
        found=$(version_of "$each")
        if [ -n "$found" ] && grep -qxF "$found" "$here/PYTHONS"; then
            python=$each
            break
        fi
    done
    [ -n "$python" ] || fail "there is no Python here of the versions of this kit: $(xargs <"$here/PYTHONS")"
fi

# --- the program, beside the one that may run now ---------------------------------------------------------------------

if [ -e "$new/.installed" ]; then
    echo "deskgrid $version is in $new already"
else
    rm -rf "$new"
    # pip comes from the kit: some systems have venv without it.
    "$python" -m venv --without-pip "$new" || fail "$python cannot make virtual environments: install python3-venv"
    "$new/bin/python" "$(ls "$here"/wheels/pip-*.whl)/pip" --no-cache-dir --disable-pip-version-check install --quiet \
        --no-index --find-links "$here/wheels" "deskgrid==$version" || { rm -rf "$new"; fail 'pip failed'; }
    touch "$new/.installed"
fi
rm -f "$prefix.new"
ln -s "$new" "$prefix.new"
mv -T "$prefix.new" "$prefix"
echo "deskgrid $version is in $prefix"
[ $service = yes ] || exit 0

# --- the worker -------------------------------------------------------------------------------------------------------

# What was installed here before, of other versions: a line for each.
others() {
    for old in "$prefix"-[0-9]*; do
        [ "$old" = "$new" ] || [ ! -e "$old/.installed" ] || echo "$old"
    done
}

# By this path, which stays the same: the service is to start what is installed later, too.
deskgrid() {
    "$prefix/bin/python" -m deskgrid.cli "$@"
}

if [ -e /etc/systemd/system/deskgrid-worker.service ]; then
    grep -qF "$prefix/bin/" /etc/systemd/system/deskgrid-worker.service \
        || fail "deskgrid-worker starts another deskgrid: first run deskgrid service uninstall worker"
    [ $# = 0 ] || echo "install.sh: the service is there, and keeps its options: $* is not used" >&2
    # Others that were installed before are removed below: until then, the service may run one of them.
    [ -z "$(others)" ] || deskgrid service restart worker
else
    case " $* " in
        *' --run-as'*) ;;
        *)
            [ -n "$accounts" ] || accounts=$(getconf _NPROCESSORS_ONLN)
            number=0
            while [ $number -lt "$accounts" ]; do
                number=$((number + 1))
                id "deskgrid-task-$number" >/dev/null 2>&1 \
                    || useradd --system --user-group --no-create-home --home-dir /nonexistent \
                        --shell /usr/sbin/nologin "deskgrid-task-$number"
            done
            [ "$accounts" = 0 ] || set -- --run-as 'deskgrid-task-%' "$@"
            ;;
    esac
    if [ -n "$join" ]; then
        deskgrid service install worker --join "@$join" -- "$@"
    else
        [ -e /var/lib/deskgrid/identities ] || fail 'the first time, give --join FILE, with the lab'\''s line'
        deskgrid service install worker -- "$@"
    fi
fi

# What was here before does not run any more.
others | while IFS= read -r old; do rm -rf "$old"; done
