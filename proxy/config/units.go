package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

const (
	durationPattern = `^([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$|^0$`
	sizePattern     = `^[0-9]+ ?(B|[KMGTP]iB|kB|[MGTP]B)?`
)

func setDuration(_ *decoder, _ *field, v reflect.Value, text string) *complaint {
	d, err := time.ParseDuration(text)
	if err == nil && !strings.HasPrefix(text, "+") && !strings.HasPrefix(text, "-") {
		v.SetInt(int64(d))
		return nil
	}
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return complain(fmt.Sprintf("write %ds, or %dms", n, n), "%q has no unit", text)
	}
	if number, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(number, 10, 16); err == nil {
			return complain(fmt.Sprintf("write %dh", n*24), "%q: there is no unit for days", text)
		}
	}
	return complain("write 250ms, 5s, 1m30s or 2h", "%q is not a duration", text)
}

func showDuration(v reflect.Value) string { return ShowDuration(time.Duration(v.Int())) }

// ShowDuration returns a duration as it is written in a file: its String without the zeros at
// the end.
func ShowDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// units of sizes, the larger ones first.
var units = []struct {
	name string
	n    int64
}{
	{"PiB", 1 << 50},
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"PB", 1e15},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"B", 1},
}

// setRate is setSize for bytes per second.
func setRate(d *decoder, f *field, v reflect.Value, text string) *complaint {
	if c := setSize(d, f, v, strings.TrimSuffix(text, "/s")); c != nil {
		return complain(c.fix, "%q is not a size", text)
	}
	return nil
}

func setSize(_ *decoder, _ *field, v reflect.Value, text string) *complaint {
	digits, unit := text, int64(1)
	for _, u := range units {
		if number, ok := strings.CutSuffix(digits, u.name); ok {
			digits, unit = strings.TrimSuffix(number, " "), u.n
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if less, ok := strings.CutSuffix(text, "/s"); ok {
		return complain("write it without /s: "+less, "%q is not a size but a rate", text)
	}
	if err != nil || n < 0 || digits[0] == '+' || n > math.MaxInt64/unit {
		return complain("write 65536, 64KiB or 1MiB", "%q is not a size", text)
	}
	v.SetInt(n * unit)
	return nil
}

func showSize(n int64) string {
	for _, u := range units[:5] {
		if n != 0 && n%u.n == 0 {
			return strconv.FormatInt(n/u.n, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
