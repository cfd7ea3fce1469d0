package doctor

import (
	"strconv"
	"strings"
)

// number is a figure that may not be known.
type number struct {
	value int64
	known bool
}

func known[T int | int64 | uint64](v T) number { return number{int64(v), true} }

// IsZero leaves an unknown figure out of the JSON (omitzero).
func (n number) IsZero() bool { return !n.known }

// MarshalJSON writes the value; an unknown one is null.
func (n number) MarshalJSON() ([]byte, error) {
	if !n.known {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, n.value, 10), nil
}

// String is the value for people, with its thousands apart.
func (n number) String() string {
	if !n.known {
		return "unknown"
	}
	return exact(n.value)
}

// exact is a number with its thousands apart.
func exact[T int | int64 | uint64](v T) string {
	s := strconv.FormatInt(int64(v), 10)
	digits := strings.TrimPrefix(s, "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return strings.TrimSuffix(s, strings.ReplaceAll(digits, ",", "")) + digits
}

// several is a number of things, with the word for one or that for more.
func several[T int | int64](n T, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return exact(n) + " " + more
}

// size is a number of bytes in the largest unit that it is a multiple of, or with
// one decimal if there is none such.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, k := float64(n), 0
	for v >= 1024 && k < len(units)-1 {
		v /= 1024
		k++
	}
	text := strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	return text + " " + units[k]
}
