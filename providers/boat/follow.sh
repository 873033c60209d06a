# Tells what a command that run.sh runs has written, as it comes, in lines: "O<bytes>" or "E<bytes>" and then so much of
# standard output or error in base64; "X<code>" at the end; "-" as a sign of life; "C" when it is time to ask again, "G" if
# the folder is not there. $1: the folder; $2, $3: how many bytes of out and err are known already.
#
# It ends by itself after five minutes: before the service's own limit, so that nothing of it can stay, and so that it is
# asked now and then whether the command's shell is still there.
d=$1 o=$2 e=$3 rounds=0 tenths=0 quiet=0
piece() {
	n=0
	[ -r "$2" ] || return
	n=$(($(wc -c <"$2") - $3))
	[ $n -gt 0 ] || n=0
	[ $n -le 262144 ] || n=262144
	[ $n -gt 0 ] || return
	echo "$1$n"
	tail -c "+$(($3 + 1))" "$2" | head -c "$n" | base64
}
while [ $tenths -lt 3000 ]; do
	over=
	[ -e "$d/code" ] && over=yes # what was written before is all there is
	piece O "$d/out" "$o"
	o=$((o + n)) m=$n
	piece E "$d/err" "$e"
	e=$((e + n)) m=$((m + n))
	if [ $m -gt 0 ]; then
		rounds=0 quiet=0
		continue
	fi
	case $over in yes)
		echo "X$(cat "$d/code")"
		exit
		;;
	esac
	rounds=$((rounds + 1))
	if [ $rounds -gt 60 ]; then
		p=10
	elif [ $rounds -gt 20 ]; then
		p=5
	else
		p=1
	fi
	if [ $rounds -gt 20 ] && [ ! -e "$d" ]; then
		echo G
		exit
	fi
	case $p in
	10) sleep 1 ;;
	*) sleep 0.$p ;;
	esac
	tenths=$((tenths + p)) quiet=$((quiet + p))
	if [ $quiet -ge 200 ]; then
		quiet=0
		echo -
	fi
done
echo C
