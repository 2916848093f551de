#!/usr/bin/env bash
# The demo and the quick tests on machines as Debian ships them: bare, with the distribution's own Pythons.
# For root on a machine with debootstrap: `make machines`, or some of them: make machines ARGS="bookworm forky".
#
# A machine is a folder, made of the packages that the README names, from the mirror that this machine's apt uses. It
# tests the commit HEAD of this checkout, beside whatever else runs here. It has mounts and processes of its own
# (namespaces), so that the kernel ends them with this script, however that ends. The folders take 700 MB, one at a time.
set -euo pipefail

# The name of a release, and its Pythons. The first is the one that `make demo` takes.
declare -A pythons=([bookworm]="python3" [trixie]="python3" [forky]="python3 python3.15")
suites="bookworm trixie forky"
# What the README says that a bare machine needs, and what tests use that look at processes and networks.
needs=python3,python3-venv,make,ca-certificates,procps,iproute2
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
certificates=/etc/ssl/certs/ca-certificates.crt
# Of pip's settings, those that make sense on another machine.
passed_on="PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_DEFAULT_TIMEOUT http_proxy https_proxy no_proxy"

fail() { echo "$*" >&2; exit 2; }

# The first Debian mirror that apt names here, in either format of its lists; not the one for security updates.
mirror() {
    { cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null || true; } |
        sed -nE '/^(URIs:|deb( \[[^]]*\])?) +([^ ]*\/debian\/?)( .*)?$/{s//\3/p;q}'
}

# isolated COMMAND...: run it with mounts and processes that end when it ends, when this script ends, or on a signal to it.
isolated() {
    # In the background, a shell has Ctrl-C ignored; tests expect what a terminal has.
    (exec setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child -- \
        env --default-signal=INT,QUIT "$@") </dev/null &
    child=$!
    wait "$child"
}

# make_machine SUITE FOLDER: fails when it cannot be made, and $work/log says why.
make_machine() {
    local more=$needs python script=/usr/share/debootstrap/scripts/$1
    for python in ${pythons[$1]#python3}; do more+=,$python,$python-venv; done
    [[ -e $script ]] || script=/usr/share/debootstrap/scripts/sid # a release that is newer than this debootstrap
    isolated debootstrap --force-check-gpg --keyring="$keyring" --variant=minbase --include="$more" \
        "$1" "$2" "$mirror" "$script" >"$work/log" 2>&1 &&
        cp -L /etc/hosts /etc/resolv.conf "$2/etc/" &&
        { [[ ! -e ${PIP_CERT:-$certificates} ]] || cp -L "${PIP_CERT:-$certificates}" "$2$certificates"; } &&
        git -c safe.directory='*' clone --quiet "$here" "$2/root/deskgrid" >>"$work/log" 2>&1
}

# on_machine FOLDER COMMAND...: run a command in the checkout there, as its root.
on_machine() {
    local folder=$1 name settings=()
    for name in $passed_on; do [[ -z ${!name:-} ]] || settings+=("$name=${!name}"); done
    shift
    isolated bash -ec '
        folder=$1; shift
        mount --bind "$folder" "$folder" # so that the machine has a root that mounts can be made private below
        mount -t proc proc "$folder/proc"
        mount --rbind /dev "$folder/dev"
        mount -t tmpfs -o mode=1777 tmpfs "$folder/dev/shm" # what else runs here has names of its own there
        mount -t sysfs -o ro sysfs "$folder/sys"
        chroot "$folder" "$@"
        exit' machine "$folder" \
        /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        PIP_CERT=$certificates "${settings[@]}" bash -c 'cd /root/deskgrid && "$@"' machine "$@"
}

# try SUITE FOLDER PYTHON TARGET: run `make TARGET` there and note how it went.
try() {
    local began=$SECONDS version how=passed
    version=$(chroot "$2" "$3" -c 'import platform; print(platform.python_version())')
    echo "--- $1, Python $version: make $4"
    on_machine "$2" make "$4" $([[ $3 == python3 ]] || echo "PYTHON=$3") || { how=FAILED; status=1; }
    told+=("$1, Python $version: make $4 $how after $((SECONDS - began)) s")
}

end() {
    kill -KILL "$child" 2>/dev/null || true
    wait
    rm -rf --one-file-system "$work"
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
for suite in "$@"; do [[ -n ${pythons[$suite]:-} ]] || fail "there is no machine $suite: choose of $suites"; done
[[ $(id -u) == 0 ]] || fail "a machine is made by root: sudo make machines"
for program in debootstrap gpgv unshare setpriv git; do
    command -v "$program" >/dev/null || fail "$program is missing: apt install debootstrap gpgv util-linux git"
done
[[ -e $keyring ]] || fail "Debian's keys are missing: apt install debian-archive-keyring"
mirror=$(mirror)
[[ -n $mirror ]] || fail "apt names no mirror of Debian here (/etc/apt/sources.list, /etc/apt/sources.list.d)"

work=$(mktemp -d "${TMPDIR:-/tmp}/deskgrid-machines-XXXXXX")
child=
trap end EXIT
trap 'exit 130' INT TERM HUP
told=()
status=0
for suite in ${*:-$suites}; do
    folder=$work/$suite
    echo "--- $suite: making the machine"
    if ! make_machine "$suite" "$folder"; then
        told+=("$suite could not be made: $(grep -v '^I: ' "$work/log" | tail -n 1)")
        status=1
    else
        for python in ${pythons[$suite]}; do
            try "$suite" "$folder" "$python" demo
            try "$suite" "$folder" "$python" quick
        done
    fi
    rm -rf --one-file-system "$folder"
done
echo "--- machines"
printf '%s\n' "${told[@]}"
exit $status
