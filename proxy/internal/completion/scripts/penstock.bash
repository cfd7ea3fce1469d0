# Completion of penstock's commands in bash 4 and later:
#     source <(penstock completion bash)
# or, for good, penstock completion bash > /etc/bash_completion.d/penstock

_penstock() {
	local line=${COMP_LINE:0:COMP_POINT} word rest prefix= breaks= reply kind=
	local -a words
	# Words by spaces: COMP_WORDS is cut at = and : as well.
	read -ra words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=("")
	word=${words[-1]}
	[[ $COMP_WORDBREAKS == *=* ]] && breaks+="="
	[[ $COMP_WORDBREAKS == *:* ]] && breaks+=":"
	rest=$word
	if [[ -n $breaks ]]; then
		rest=${word##*[$breaks]}
		prefix=${word%"$rest"}
	fi
	COMPREPLY=()
	while IFS=$'\t' read -r reply _; do
		case $reply in
		=*) kind=$reply ;;
		*)
			COMPREPLY+=("${reply#"$prefix"}")
			[[ $reply == *: ]] && compopt -o nospace
			;;
		esac
	done < <("${words[0]/#\~/$HOME}" __complete -- "${words[@]:1}" 2>/dev/null)
	case $kind in
	=files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$rest") ;;
	=directories) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$rest") ;;
	esac
}

complete -F _penstock penstock
