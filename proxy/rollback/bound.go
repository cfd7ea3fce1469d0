package rollback

import (
	"fmt"
	"strconv"
	"strings"
)

// A Bound is how far a counter may rise.
type Bound struct {
	Counter string
	Most    int64 // a greater increase passes the bound
}

// ParseBound reads "failures>50": the bound is passed as soon as the counter of that name is
// by more than 50 greater than at the time of the change; ">=" includes the number itself.
// Spaces are allowed. The error wraps [ErrOptions].
func ParseBound(text string) (Bound, error) {
	name, number, found := strings.Cut(text, ">")
	name, number = strings.Trim(name, " "), strings.Trim(number, " ")
	switch {
	case !found:
		return Bound{}, boundError(text, "there is no '>'")
	case name == "":
		return Bound{}, boundError(text, "the name of a counter is missing")
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "":
		return Bound{}, boundError(text, fmt.Sprintf("%q is not the name of a counter", name))
	}
	number, atLeast := strings.CutPrefix(number, "=")
	number = strings.Trim(number, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case number == "":
		return Bound{}, boundError(text, "the number is missing")
	case err != nil:
		return Bound{}, boundError(text, fmt.Sprintf("%q is not a whole number", number))
	case n < 0, atLeast && n == 0:
		return Bound{}, boundError(text, "it would always hold")
	case atLeast:
		n--
	}
	return Bound{Counter: name, Most: n}, nil
}

func boundError(text, what string) error {
	return fmt.Errorf("%w: rollback-if %q: %s: write a counter and by how much it may rise, such as 'failures>50'", ErrOptions, text, what)
}

// String returns the bound in the form that [ParseBound] takes.
func (b Bound) String() string { return fmt.Sprintf("%s>%d", b.Counter, b.Most) }
