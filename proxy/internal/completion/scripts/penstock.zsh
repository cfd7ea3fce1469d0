#compdef penstock
# Completion of penstock's commands in zsh:
#     source <(penstock completion zsh)
# or, for good, penstock completion zsh > "${fpath[1]}/_penstock"

_penstock() {
	local line kind
	local -a asked values described
	asked=("${(@Q)words[2,CURRENT]}")
	while IFS= read -r line; do
		if [[ $line == '='* ]]; then
			kind=$line
		else
			values+=("${line%%$'\t'*}")
			described+=("${line/$'\t'/  }")
		fi
	done < <("${(Q)words[1]}" __complete -- "${asked[@]}" 2>/dev/null)
	case $kind in
	'=files' | '=directories')
		compset -P '*='
		compset -P 'unix:'
		if [[ $kind == '=files' ]]; then _files; else _files -/; fi
		;;
	*)
		if [[ ${values[*]} == *: ]]; then
			compadd -S '' -a values
		else
			compadd -l -d described -a values
		fi
		;;
	esac
}

if [[ $funcstack[1] == _penstock ]]; then
	_penstock "$@"
else
	compdef _penstock penstock
fi
