#!/usr/bin/env bash
# A PC with Windows, played by Wine: CPython 3.11.9 for Windows, and what deskgrid and its tests need, in a folder.
#
#     windows.sh make FOLDER        make it, or bring it up to date; takes half a minute
#     windows.sh end FOLDER         end all that runs there
#     windows.sh tests              make it in a folder that is removed; run the demo and the tests: `make windows`
#     windows.sh tests quick        the same in two minutes, without the demo; or with arguments of pytest
#
# FOLDER/python runs the Python. Redirect its output into a file: with a pipe, Wine's console keeps it open. The official
# installer is not in any registry of packages. But the wheel that panda3d has for Windows contains the DLLs of the
# official CPython 3.11.9, and the library is that of any CPython 3.11 (best 3.11.4 or later: PYTHON names it). Two small
# programs take the place of python.exe. Needs Wine, and a compiler for Windows.
#
# What differs from a real Windows: docs/how-to/pcs-with-windows.md.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# Installed there, in the versions of requirements-dev.txt. Only colorama and tzdata are not needed everywhere.
packages="apscheduler click cloudpickle colorama coverage execnet hypothesis iniconfig markdown-it-py mdurl msgpack
packaging pluggy pygments pytest pytest-cov pytest-timeout pytest-xdist pyzmq rich sortedcontainers tzdata tzlocal"

fail() { echo "$*" >&2; exit 2; }

# The Python whose library is taken, and whose pip finds the packages.
host_python() {
    local python
    for python in ${PYTHON:-python3.11 python3 /usr/bin/python3}; do
        "$python" -c 'import sys, pip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && echo "$python" && return
    done
    fail "no Python 3.11 with pip is here; name one: PYTHON=/path/to/python3.11"
}

make_machine() {
    local folder=$1 work python program
    for program in wine wineserver x86_64-w64-mingw32-gcc tar; do
        command -v "$program" >/dev/null ||
            fail "$program is missing: apt install wine64 wine gcc-mingw-w64-x86-64-win32"
    done
    python=$(host_python)
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    work=$folder/work
    rm -rf "$work" && mkdir "$work"
    pip() { "$python" -m pip --quiet --disable-pip-version-check "$@"; }
    local for_windows=(--no-deps --only-binary=:all: --platform win_amd64 --python-version 3.11 --implementation cp --abi cp311)
    local lib=$folder/Lib site=$folder/Lib/site-packages
    mkdir -p "$site" "$folder/DLLs" "$lib/venv/scripts/nt"
    if [[ ! -e $folder/python311.dll ]]; then
        pip download "${for_windows[@]}" -d "$work" panda3d==1.10.16 || fail "pip has no wheel of panda3d for Windows"
        "$python" -m zipfile -e "$work"/panda3d-*.whl "$work"
        (cd "$work/deploy_libs" && cp python311.dll VCRUNTIME140*.dll "$folder" &&
            cp _[a-z]*.pyd pyexpat.pyd select.pyd unicodedata.pyd winsound.pyd libcrypto-3.dll libssl-3.dll \
                libffi-8.dll sqlite3.dll "$folder/DLLs")
        (cd "$("$python" -c 'import os; print(os.path.dirname(os.__file__))')" &&
            tar cf - --exclude=__pycache__ --exclude='*.so' --exclude='config-*' --exclude=lib-dynload \
                --exclude=site-packages --exclude=dist-packages --exclude='_sysconfigdata*' \
                --exclude=sitecustomize.py --exclude=EXTERNALLY-MANAGED --exclude=./test --dereference .) |
            tar xf - -C "$lib"
    fi
    x86_64-w64-mingw32-gcc -O1 -municode "$here/python.c" -o "$folder/python.exe"
    x86_64-w64-mingw32-gcc -O1 -municode "$here/venv.c" -o "$lib/venv/scripts/nt/python.exe"
    cp "$lib/venv/scripts/nt/python.exe" "$lib/venv/scripts/nt/pythonw.exe"
    local name
    for name in $packages; do sed -nE "s/^($name==[^ ;]+).*/\1/p" "$root/requirements-dev.txt"; done >"$work/needed"
    echo pip >>"$work/needed" # of which there need not be a certain one
    if ! cmp -s "$work/needed" "$folder/installed"; then
        pip install --upgrade --target "$site" --no-compile "${for_windows[@]}" --requirement "$work/needed" ||
            fail "pip has no wheels for Windows of all packages"
        cp "$work/needed" "$folder/installed"
    fi
    # As an editable install: what it tells about itself, and a line that leads to this checkout.
    # The library of 3.11.8 and later has what their DLL calls; in earlier ones, a decorator is missing.
    grep -B 1 'def invalidate_caches(cls)' "$lib/importlib/metadata/__init__.py" | grep -q '@classmethod' ||
        sed -i 's/^    def invalidate_caches(cls)/    @classmethod\n&/' "$lib/importlib/metadata/__init__.py"
    pip wheel --no-deps --wheel-dir "$work/own" "$root" || fail "pip cannot build deskgrid"
    rm -rf "$site"/deskgrid-*.dist-info
    "$python" -m zipfile -e "$work"/own/*.whl "$work/own/files"
    cp -r "$work"/own/files/deskgrid-*.dist-info "$site"
    echo "Z:$root" >"$site/deskgrid.pth"
    export WINEPREFIX=$folder/prefix WINEDEBUG=-all WINEDLLOVERRIDES='mscoree,mshtml='
    [[ -e $WINEPREFIX/system.reg ]] || { wineboot -i >/dev/null 2>&1 </dev/null; wineserver -w; }
    printf '#!/bin/sh\nexport WINEPREFIX="%s" WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml="\nexec wine "%s" "$@"\n' \
        "$WINEPREFIX" "$folder/python.exe" >"$folder/python"
    chmod +x "$folder/python"
    rm -rf "$work"
}

# What is tried there. The files that are left out need programs of Unix (cat, sh), forks or signals, make a hundred
# thousand files, or have tests that nobody has made ready for Windows yet: they expect "\n" at the end of lines, for
# instance. What only computes is the same everywhere.
of() { local folder=$1 name; shift; for name in "$@"; do echo "$folder/test_$name.py"; done; }
quick="tests/wire $(of tests/files disk cache claims) $(of tests/worker checkpoints feeding)
$(of tests/executor templates)"
most="tests/wire tests/uptime $(of tests/cli bags front grid keys lifetime limits live needs serving worker_options)
$(of tests/client bad_results bag_files bags carried checkpoint_options classes conversation defaults following gangs \
    generators given local opening payload probing progress raised reconnecting refusals sources submission template)
$(of tests/files cache claims disk stage turns) $(of tests/environments asked reasons)
$(of tests/worker announcements checkpoints feeding pc readiness refusals)
$(of tests/executor asked_memory frames memory modules results splitting templates)"
# The marks are those of `make quick`. A test that hangs ends all that its process would have run.
marks='not slow and not alone and not hypothesis'

# on_windows FOLDER ARGUMENT...: run the Python there. What it prints is shown when it has ended.
on_windows() {
    local folder=$1 code=0
    shift
    (cd "$root" && timeout --kill-after=10 900 "$folder/python" "$@") >"$folder/log" 2>&1 </dev/null || code=$?
    cat "$folder/log"
    return $code
}

run_tests() {
    local python=${PYTHON:-python3} status=0
    folder=$(mktemp -d "${TMPDIR:-/tmp}/deskgrid-windows-XXXXXX") # the trap needs it when this function has ended
    trap 'end_all "$folder"; rm -rf "$folder"' EXIT
    trap 'exit 130' INT TERM HUP
    make_machine "$folder"
    echo "--- a grid of Linux and Windows"
    DESKGRID_TEST_WINDOWS=$folder "$python" -m pytest -q "$here/test_windows.py" || status=1
    if [[ $1 != quick ]]; then
        echo "--- the demo on Windows"
        on_windows "$folder" -m deskgrid.cli demo || status=1
    fi
    echo "--- tests on Windows"
    on_windows "$folder" -m pytest -p no:cacheprovider -m "$marks" --timeout 120 -n 2 "${@:2}" || status=1
    return $status
}

end_all() { [[ ! -e $1/prefix ]] || WINEPREFIX=$1/prefix wineserver -k || true; }

case ${1:-} in
    make) make_machine "$2" ;;
    end) end_all "$2" ;;
    # Words are a selection of our own, or arguments of pytest.
    tests)
        shift
        case ${1:-} in
            quick) run_tests quick $quick ;;
            "") run_tests most $most ;;
            *) run_tests some "$@" ;;
        esac
        ;;
    *) fail "say what to do: windows.sh make FOLDER, windows.sh end FOLDER, or windows.sh tests" ;;
esac
