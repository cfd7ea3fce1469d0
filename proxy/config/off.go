package config

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Words for off and on that other programs accept and users therefore write.
var (
	wordsForOff = []string{"no", "none", "off", "false", "n", "never", "disable", "disabled", "null", "~", "unlimited"}
	wordsForOn  = []string{"yes", "on", "true", "y", "enable", "enabled", "default"}
)

func meansOff(text string) bool { return slices.Contains(wordsForOff, strings.ToLower(text)) }
func meansOn(text string) bool  { return slices.Contains(wordsForOn, strings.ToLower(text)) }

// sectionFix returns the fix for a value that should be a group of keys.
func (f *field) sectionFix(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode:
	case f.on && (meansOff(n.Value) || n.Tag == "!!null"):
		return "write " + f.key + ": " + Off
	case f.on && meansOn(n.Value):
		return "leave it out: it is on unless it says " + Off
	case f.optional && !f.on && meansOff(n.Value):
		return "leave it out: without it there is none"
	case f.without != "" && meansOff(n.Value):
		return "write " + f.key + ": " + f.without
	}
	switch {
	case f.on:
		return "write " + f.obj.outline() + ", or " + Off
	case f.obj.shorthand != nil:
		return "write " + f.sample()
	}
	return "write " + f.obj.outline()
}

// zeroIsOff matches the doc of a key if 0 is no limit, and not the least of all limits.
var zeroIsOff = regexp.MustCompile(`\b0: (no|never|any|as |the kernel)`)

// zeroFix returns the fix for a word for off if 0 means off. It is "" if there is none.
func (f *field) zeroFix(text string) string {
	if f.form.style == styleText || f.form.style == styleBoolean || !meansOff(text) || !zeroIsOff.MatchString(f.doc) {
		return ""
	}
	return "write 0"
}
