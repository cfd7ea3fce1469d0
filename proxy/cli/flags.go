package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Timeout is the value of a flag: a duration, 0 for none.
type Timeout time.Duration

// UnmarshalText reads "5s", "1h30m" or "0".
func (t *Timeout) UnmarshalText(text []byte) (err error) {
	*t, err = parseTime(text, "500ms, 5s, 1m, 2h", "s", "ms")
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

// parseTime parses a duration. Its errors suggest the examples, or the units that a bare
// number may lack.
func parseTime(text []byte, examples string, units ...string) (Timeout, error) {
	d, err := time.ParseDuration(string(text))
	if err == nil && d >= 0 {
		return Timeout(d), nil
	}
	if n, err := strconv.ParseUint(string(text), 10, 32); err == nil {
		for i, unit := range units {
			units[i] = fmt.Sprint(n, unit)
		}
		return 0, fmt.Errorf("%q has no unit: write %s", text, strings.Join(units, ", or "))
	}
	return 0, fmt.Errorf("%q is not a time: write %s, or 0 for none", text, examples)
}

// Duration returns the value; 0 is none.
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
