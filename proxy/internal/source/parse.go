package source

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrRule is wrapped by the errors of [ParseRule] and [ParsePrefix].
var ErrRule = errors.New("not a source")

// ParseRule reads the rule for all clients (all), for those of an address, of a network, of unix sockets
// (unix), or of a user or group there (unix:uid=1000, unix:gid=1000).
func ParseRule(text string) (Rule, error) {
	switch text {
	case "all":
		return All(), nil
	case "unix":
		return UnixClients(), nil
	}
	for prefix, rule := range map[string]func(uint32) Rule{"unix:uid=": UnixUser, "unix:gid=": UnixGroup} {
		if number, ok := strings.CutPrefix(text, prefix); ok {
			id, err := strconv.ParseUint(number, 10, 32)
			if err != nil || id == 1<<32-1 { // which no user and no group has
				return Rule{}, fmt.Errorf("%q: %w: write a number, as id(1) prints it, such as %s1000", text, ErrRule, prefix)
			}
			return rule(uint32(id)), nil
		}
	}
	p, err := ParsePrefix(text, "write 10.0.0.7, 10.0.0.0/8, 2001:db8::/32, unix, unix:uid=1000 or all")
	if err != nil {
		return Rule{}, err
	}
	return Prefix(p), nil
}

// Text returns the rule as [ParseRule] takes it: an address without its length.
func (r Rule) Text() string {
	if r.kind == addresses && r.prefix.IsSingleIP() {
		return r.prefix.Addr().String()
	}
	return r.String()
}
