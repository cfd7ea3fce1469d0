package manual

import (
	"strings"

	"github.com/alecthomas/kong"
)

// values writes the arguments and the flags of a command, as sections or as parts of one.
func (r *roff) values(command *kong.Node, section string) {
	if len(command.Positional) > 0 {
		r.macro(section, "ARGUMENTS")
	}
	for _, p := range command.Positional {
		r.macro("TP")
		r.line(argument(p))
		r.line(words(p.Help))
	}
	first := true
	for _, f := range command.Flags {
		if f.Hidden || f.Name == "help" {
			continue
		}
		if first {
			r.macro(section, "OPTIONS")
			first = false
		}
		r.macro("TP")
		r.line(flag(f))
		r.line(words(f.Help))
	}
}

// flag is how a flag is written.
func flag(f *kong.Flag) string {
	text := bold("--" + f.Name)
	switch {
	case f.Tag.Negatable != "":
		text = bold("--[no-]" + f.Name)
	case f.Enum != "" && f.PlaceHolder == "":
		text += "=" + italic(strings.Join(f.EnumSlice(), "|"))
	case !f.IsBool() && !f.IsCounter():
		text += "=" + italic(f.FormatPlaceHolder())
	}
	if f.Short != 0 {
		text = bold("-"+string(f.Short)) + ", " + text
	}
	return text
}
