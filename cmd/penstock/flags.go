package main

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/socket"
)

// timeout is the value of a flag: a duration, 0 for none.
type timeout time.Duration

// UnmarshalText reads "5s", "1h30m" or "0".
func (t *timeout) UnmarshalText(text []byte) (err error) {
	*t, err = parseTime(text, "500ms, 5s, 1m, 2h", "s", "ms")
	return err
}

// micros and millis are timeouts that are that short as a rule, and never long.
type (
	micros timeout
	millis timeout
)

// UnmarshalText reads "50us", "1ms" or "0".
func (m *micros) UnmarshalText(text []byte) error {
	t, err := parseTime(text, "50us, 1ms", "us")
	*m = micros(t)
	return err
}

// UnmarshalText reads "500us", "1ms" or "0".
func (m *millis) UnmarshalText(text []byte) error {
	t, err := parseTime(text, "500us, 1ms", "ms")
	*m = millis(t)
	return err
}

// parseTime reads a duration. What to write instead of what it cannot read it takes from
// the examples, and from the units that a bare number may have been meant in.
func parseTime(text []byte, examples string, units ...string) (timeout, error) {
	d, err := time.ParseDuration(string(text))
	if err == nil && d >= 0 {
		return timeout(d), nil
	}
	if n, err := strconv.ParseUint(string(text), 10, 32); err == nil {
		for i, unit := range units {
			units[i] = fmt.Sprint(n, unit)
		}
		return 0, fmt.Errorf("%q has no unit: write %s", text, strings.Join(units, ", or "))
	}
	return 0, fmt.Errorf("%q is not a time: write %s, or 0 for none", text, examples)
}

func (t timeout) duration() time.Duration { return time.Duration(t) }

// orOff is the duration for those to whom 0 means a default, and negative off.
func (t timeout) orOff() time.Duration {
	if t == 0 {
		return -1
	}
	return time.Duration(t)
}

// size is the value of a flag: a number of bytes.
type size int

// UnmarshalText reads "64KiB", "1MiB" or "65536".
func (s *size) UnmarshalText(text []byte) error {
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
	*s = size(n << shift)
	return nil
}

// addresses reads the values of a flag that repeats, of which one is required.
func addresses(flag string, specs []string) ([]socket.Address, error) {
	if len(specs) == 0 {
		return nil, fmt.Errorf("%s is missing: write penstock proxy --listen :8080 --to 10.0.0.5:80", flag)
	}
	var addrs []socket.Address
	for _, spec := range specs {
		addr, err := socket.Parse(spec)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// affordable returns how many connections n descriptors allow: two for each, less
// a hundredth for everything else, which is more with many loops: each has two and a
// spare. Pipes are not counted: they are given back when connections need the
// descriptors.
func affordable(n, loops int) int {
	rest := min(max(n/100, 32), 1024)
	rest = max(rest, 20+4*loops)
	return max((n-rest)/2, 1)
}

// affordableByDefault is that with as many loops as there are unless told otherwise.
func affordableByDefault(n int) int { return affordable(n, defaultLoops()) }

// defaultLoops is one for each CPU, and -1 for none where there is no epoll.
func defaultLoops() int {
	if runtime.GOOS == "linux" {
		return runtime.GOMAXPROCS(0)
	}
	return -1
}
