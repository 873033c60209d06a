# Writes a file to standard output. $1: the file. The exit code is 44 if there is none, 45 for a folder.
[ -d "$1" ] && exit 45
[ -e "$1" ] || exit 44
exec cat <"$1"
