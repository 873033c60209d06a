# Writes standard input to a file. $1: the file; $2: its folder, which is made. The exit code is 45 if the file is a
# folder. A last line on standard output tells that all was read.
[ -d "$1" ] && exit 45
mkdir -p -- "$2" && cat >"$1" && echo done
