#!/bin/sh
# Print the path of a Python this project can be installed with: 3.11 or newer, with venv and ensurepip.
# Without one: say what is missing and the one command that cures it, on stderr, and exit 1.
# PYTHON=... names the one to use.
set -u

fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
has_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

as_root() { if [ "$(id -u)" = 0 ]; then echo "$*"; else echo "sudo $*"; fi; }

# The newest Python this machine's own package manager offers, as one command.
cure_python() {
  if command -v pyenv >/dev/null 2>&1; then
    echo "pyenv install 3.13 && pyenv local 3.13"
  elif command -v brew >/dev/null 2>&1; then
    echo "brew install python@3.13"
  elif command -v apt-get >/dev/null 2>&1; then
    for minor in 13 12 11; do
      if apt-cache show "python3.$minor-venv" >/dev/null 2>&1; then
        as_root apt-get install -y "python3.$minor" "python3.$minor-venv"
        return
      fi
    done
    as_root "apt-get update && $(as_root apt-get install -y python3 python3-venv)"
  elif command -v dnf >/dev/null 2>&1; then
    as_root dnf install -y python3.12
  elif command -v apk >/dev/null 2>&1; then
    as_root apk add python3 py3-pip
  elif command -v pacman >/dev/null 2>&1; then
    as_root pacman -S --noconfirm python
  elif command -v zypper >/dev/null 2>&1; then
    as_root zypper install -y python312
  else
    echo "(install Python 3.11 or newer with your system's package manager)"
  fi
}

cure_venv() {
  if command -v apt-get >/dev/null 2>&1; then
    minor=$("$1" -c 'import sys; print(sys.version_info[1])')
    as_root apt-get install -y "python3.$minor-venv"
  else
    cure_python
  fi
}

bare=""
for candidate in ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.11 python3; do
  if fits "$candidate"; then
    if has_venv "$candidate"; then
      "$candidate" -c 'import sys; print(sys.executable)'
      exit 0
    fi
    [ -n "$bare" ] || bare=$candidate
  fi
  [ -z "${PYTHON:-}" ] || break # named, so no other is tried
done

if [ -n "$bare" ]; then
  echo "$bare has no venv/ensurepip, which the installation needs. Cure:" >&2
  echo "  $(cure_venv "$bare")" >&2
elif [ -n "${PYTHON:-}" ]; then
  echo "PYTHON=$PYTHON is not a Python 3.11 or newer. Name another, or install one:" >&2
  echo "  $(cure_python)" >&2
else
  found=$(python3 --version 2>/dev/null || echo "no python3")
  echo "Python 3.11 or newer is needed; found: $found. Cure:" >&2
  echo "  $(cure_python)" >&2
fi
exit 1
