# shellcheck shell=bash
# Sourced by tools/setup and tools/test in the repository's root: configuring builds, and showing their progress.

export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1  # so that another clone finds what this one compiled
unset PYTHONDONTWRITEBYTECODE                  # without its .pyc files, TensorFlow takes three times as long to import
exec {screen}>&1                               # where progress is shown, also from a stage whose words go elsewhere

# found: the compilers, MPI and libraries of this machine, as printed by tools/found.py, which runs once. An activated .venv
# makes no difference.
found() {
  [[ -n ${found_here:-} ]] || found_here=$(PATH=$PWD/.venv/bin:$PATH .venv/bin/python tools/found.py)
  echo "$found_here"
}

# The GPU's own architecture, or the oldest one with the features that we use, because seven architectures take seven times as
# long. The wheel of a plain `pip install .` has all.
cuda_architectures() {
  local here
  here=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -E '^[0-9]+\.[0-9]+$' | tr -d . |
    sort -nu | paste -sd ';' || true)
  echo "${here:-80}"
}

# forget_old_findings FOLDER VALUE: deletes CMake's cache if VALUE, the output of `found`, has changed. Objects are kept: ninja
# knows which of them are up to date.
forget_old_findings() {
  [[ -f $1/found && $(<"$1/found") == "$2" ]] && return
  rm -rf "$1/CMakeCache.txt" "$1/CMakeFiles"
  mkdir -p "$1"
  echo "$2" >"$1/found"
}

# configure FOLDER PRESET [-DNAME=VALUE...]: does nothing if already done for the same values; ninja detects a changed
# CMakeLists.txt.
configure() {
  local folder=$1 preset=$2
  shift 2
  forget_old_findings "$folder" "$(found && printf '%s\n' "$preset" "$@")"
  [[ -f $folder/CMakeCache.txt && -f $folder/build.ninja && CMakePresets.json -ot $folder/build.ninja ]] ||
    cmake --preset "$preset" -B "$folder" "$@"
}

# The newest of ninja's lines in a log, such as "[37/92] Building CXX object src/x.o", as "compiling 37 of 92".
compiled_so_far() {
  tail -c 20000 "$1" 2>/dev/null | tr '\r' '\n' | sed -nE 's/^ *\[([0-9]+)\/([0-9]+)\] .*/compiling \1 of \2/p' | tail -n 1
}
compiled_last() {
  tail -c 20000 "$1" 2>/dev/null | tr '\r' '\n' | sed -nE 's/^ *\[[0-9]+\/[0-9]+\] .* ([^ ]+)$/\1/p' | tail -n 1 | sed 's#.*/##; s#\.o$##'
}

# One line that is redrawn on a terminal; in a log, a line every 20 s.
show_progress() {
  local who=$1 log=$2 start=$SECONDS next=${TOOLS_PROGRESS_SECONDS:-20} passed done_part text
  while sleep 1 >&- 2>&- && kill -0 $$ 2>/dev/null; do
    passed=$((SECONDS - start))
    done_part=$(compiled_so_far "$log")
    text="$who:   ${done_part:+$done_part, }$passed s so far"
    if [[ -t $screen ]]; then
      text+="${done_part:+  $(compiled_last "$log")}"
      printf '\r\e[K%s' "${text:0:$(($(tput cols 2>/dev/null || echo 80) - 1))}" >&"$screen"
    elif ((passed >= next)); then
      echo "$text" >&"$screen"
      ((next += ${TOOLS_PROGRESS_SECONDS:-20}))
    fi
  done
}

# watched WHO LOG COMMAND...: its output goes to the file LOG, and the screen shows its progress. It runs in the foreground, so
# that ctrl-C reaches it; the process that shows the progress ends with this script.
watched() {
  local who=$1 log=$2 code=0 watcher
  shift 2
  : >"$log"
  show_progress "$who" "$log" &
  watcher=$!
  "$@" >"$log" 2>&1 </dev/null {screen}>&- || code=$?
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  [[ ! -t $screen ]] || printf '\r\e[K' >&"$screen"
  return "$code"
}
