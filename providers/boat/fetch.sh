# Writes a file in base64, and a dot on a line of its own when that was all. $1: the file. The exit code is 44 if there is
# none, 45 for a folder.
[ -d "$1" ] && exit 45
[ -e "$1" ] || exit 44
base64 <"$1" && echo .
