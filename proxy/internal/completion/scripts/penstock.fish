# Completion of penstock's commands in fish:
#     penstock completion fish | source
# or, for good, penstock completion fish > ~/.config/fish/completions/penstock.fish

function __penstock_complete
	set -l words (commandline -opc)
	set -l current (commandline -ct)
	for line in ($words[1] __complete -- $words[2..] "$current" 2>/dev/null)
		switch $line
			case =files =directories
				set -l prefix (string match -r '^(?:--[^=]*=)?(?:unix:)?' -- "$current")
				set -l path (string replace -- "$prefix" '' "$current")
				if test $line = =files
					for file in (__fish_complete_path "$path")
						echo $prefix$file
					end
				else
					for directory in (__fish_complete_directories "$path" '')
						echo $prefix$directory
					end
				end
			case '=*'
			case '*'
				echo $line
		end
	end
end

complete -c penstock -f -a '(__penstock_complete)'
