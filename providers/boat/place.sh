# Puts a piece of a file where it belongs and removes it. $1: the piece; $2: the file, absolute; $3: "new" if it is the first
# piece, which makes the folders above and takes the place of what was there. The exit code is 45 for a folder.
code=1
if [ -d "$2" ]; then
	code=45
elif [ "$3" = new ]; then
	dir=${2%/*}
	{ [ -z "$dir" ] || mkdir -p "$dir"; } && cat "$1" >"$2" && code=0
else
	cat "$1" >>"$2" && code=0
fi
rm -f "$1"
exit $code
