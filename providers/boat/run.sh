# Runs a command in the background of a machine and leaves what becomes of it in a folder: "out" and "err", and at the end
# "code". $1: the folder, which is made; $2: where to run, or empty; $3: as whom, or empty; then "name=value" of variables,
# program and arguments. The sandbox's own variables come before these: see the file .sandglass.
d=$1 dir=$2 who=$3
shift 3
(umask 077 && mkdir "$d" && : >"$d/out" && : >"$d/err") || exit 125
if [ -r "$HOME/.sandglass" ]; then eval "$(cat "$HOME/.sandglass")"; fi
set -- env "SANDGLASS_EXEC=$SANDGLASS_EXEC" "$@"
case $who in ?*) set -- sudo -n -u "$who" -- "$@" ;; esac
(
	case $dir in ?*) cd "$dir" || exit 126 ;; esac
	exec "$@"
) </dev/null >"$d/out" 2>"$d/err"
echo "$?" >"$d/end"
mv "$d/end" "$d/code"
