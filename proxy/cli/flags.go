// Package cli is what the command lines of Penstock's programs share: the environment of a process as a value, exit
// codes, usage errors, and the values of flags. A command is a struct for github.com/alecthomas/kong with a method
// Run(*Env) error.
package cli

import (
	"fmt"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Timeout is the value of a flag: a duration, or 0 for none.
type Timeout time.Duration

// UnmarshalText reads "5s", "1h30m" or "0".
func (t *Timeout) UnmarshalText(text []byte) (err error) {
	*t, err = parseTime(text, "500ms, 5s, 1m, 2h", "m", "s", "ms")
	return err
}

// micros and millis are timeouts that are usually that short, and never long.
type (
	Micros Timeout
	Millis Timeout
)

// UnmarshalText reads "50us", "1ms" or "0".
func (m *Micros) UnmarshalText(text []byte) error {
	t, err := parseTime(text, "50us, 1ms", "us")
	*m = Micros(t)
	return err
}

// UnmarshalText reads "500us", "1ms" or "0".
func (m *Millis) UnmarshalText(text []byte) error {
	t, err := parseTime(text, "500us, 1ms", "ms")
	*m = Millis(t)
	return err
}

// orderly matches times with each unit at most once, the larger unit first: 1h1h may be meant as 1h1m.
var orderly = regexp.MustCompile(`^[+-]?([0-9.]+h)?([0-9.]+m)?([0-9.]+s)?([0-9.]+ms)?([0-9.]+[uµμ]s)?([0-9.]+ns)?$|^[+-]?0$`)

// parseTime parses a duration. Its errors suggest the examples, or the units that a bare
// number may lack.
func parseTime(text []byte, examples string, units ...string) (Timeout, error) {
	d, err := time.ParseDuration(string(text))
	if err == nil && d >= 0 && orderly.Match(text) {
		return Timeout(d), nil
	}
	if n, err := strconv.ParseUint(string(text), 10, 32); err == nil {
		for i, unit := range units {
			units[i] = fmt.Sprint(n, unit)
		}
		return 0, fmt.Errorf("%q has no unit: write %s", text, strings.Join(units, ", or "))
	}
	if days, ok := wholeDays(string(text)); ok {
		return 0, fmt.Errorf("%q: there is no unit for days here: write %v", text, hours(days))
	}
	return 0, fmt.Errorf("%q is not a time: write %s, or 0 for none", text, examples)
}

// wholeDays reads a number of days, such as 7d, up to ten years.
func wholeDays(text string) (days time.Duration, ok bool) {
	number, ok := strings.CutSuffix(text, "d")
	n, err := strconv.ParseUint(number, 10, 16)
	return time.Duration(n) * 24 * time.Hour, ok && err == nil && n < 3660
}

func hours(d time.Duration) string { return fmt.Sprintf("%dh", d/time.Hour) }

// Span is the value of a flag: a duration above 0, which may be in days.
type Span time.Duration

// UnmarshalText reads "30m", "1h30m" or "7d".
func (s *Span) UnmarshalText(text []byte) error {
	d, ok := wholeDays(string(text))
	if !ok {
		var err error
		if d, err = time.ParseDuration(string(text)); err != nil {
			d = 0
		}
	}
	if d <= 0 {
		return fmt.Errorf("%q is not a time: write 30m, 1h or 7d", text)
	}
	*s = Span(d)
	return nil
}

// Duration returns the value.
func (s Span) Duration() time.Duration { return time.Duration(s) }

// Duration returns the value. 0 is none.
func (t Timeout) Duration() time.Duration { return time.Duration(t) }

// OrOff returns the duration for a field in which 0 means a default, and a negative value off.
func (t Timeout) OrOff() time.Duration {
	if t == 0 {
		return -1
	}
	return time.Duration(t)
}

// Size is the value of a flag: a number of bytes.
type Size int

// UnmarshalText reads "64KiB", "1MiB" or "65536".
func (s *Size) UnmarshalText(text []byte) error {
	digits, shift := string(text), 0
	for i, unit := range []string{"KiB", "MiB"} {
		if number, ok := strings.CutSuffix(digits, unit); ok {
			digits, shift = number, 10*(i+1)
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 31-shift)
	if err != nil {
		return fmt.Errorf("%q is not a size: write 65536, 64KiB or 1MiB", text)
	}
	*s = Size(n << shift)
	return nil
}

// A Pair is an argument that may also hold the next argument, after a slash: shop/one for shop one, as lists print
// them. If another word follows, the slash is left alone, unless that word is a number, which belongs to a later
// argument.
type Pair string

// Decode implements [kong.MapperValue].
func (p *Pair) Decode(ctx *kong.DecodeContext) error {
	var word string
	if err := ctx.Scan.PopValueInto("string", &word); err != nil {
		return err
	}
	first, second, both := strings.Cut(word, "/")
	if both && first != "" && second != "" && !followed(ctx.Scan.Peek()) {
		word = first
		ctx.Scan.PushTyped(second, kong.PositionalArgumentToken)
	}
	*p = Pair(word)
	return nil
}

// followed reports whether a token is an argument and not a number or a percentage.
func followed(t kong.Token) bool {
	_, err := strconv.Atoi(strings.TrimSuffix(t.String(), "%"))
	return err != nil && t.IsValue()
}

// Version returns the version of this build.
func Version() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(info)
}

// versionOf returns the module's version, "v1.2.3" or "(devel)", and the commit if the go command recorded one. (It
// marks a changed tree with "+dirty".)
func versionOf(info *debug.BuildInfo) string {
	if info == nil {
		return "(unknown)"
	}
	version := info.Main.Version
	if version == "" {
		version = "(devel)"
	}
	for _, s := range info.Settings {
		// A pseudo-version ends with the beginning of the commit.
		if s.Key == "vcs.revision" && !strings.Contains(version, s.Value[:min(12, len(s.Value))]) {
			version += " " + s.Value
		}
	}
	return version
}
