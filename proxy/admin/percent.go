package admin

import (
	"fmt"
	"strconv"
	"strings"
)

// ParsePercent reads percentages of upstreams, each one written "shop:95"; together they
// must be 100. The error wraps [ErrInvalid].
func ParsePercent(list []string) (map[string]int, error) {
	percent, sum := make(map[string]int, len(list)), 0
	for _, text := range list {
		i := strings.LastIndexByte(text, ':')
		n, err := strconv.Atoi(strings.TrimSuffix(text[i+1:], "%"))
		if i <= 0 || err != nil || n < 0 || n > 100 {
			return nil, fmt.Errorf("%w: %q: write an upstream and its percentage, such as shop:95", ErrInvalid, text)
		}
		if _, twice := percent[text[:i]]; twice {
			return nil, fmt.Errorf("%w: upstream %s is there twice", ErrInvalid, text[:i])
		}
		percent[text[:i]], sum = n, sum+n
	}
	if sum != 100 {
		return nil, fmt.Errorf("%w: the percentages add up to %d: write what makes 100", ErrInvalid, sum)
	}
	return percent, nil
}
