package admin

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParsePercent reads percentages of upstreams, each one written "shop:95" or, to a hundredth,
// "shop:99.75". Their sum must be 100. The error wraps [ErrInvalid].
func ParsePercent(list []string) (map[string]float64, error) {
	percent, sum := make(map[string]float64, len(list)), 0
	for _, text := range list {
		i := strings.LastIndexByte(text, ':')
		hundredths, ok := parseHundredths(strings.TrimSuffix(text[i+1:], "%"))
		if i <= 0 || !ok {
			return nil, fmt.Errorf("%w: %q: write an upstream and its percentage, such as shop:95 or shop:99.75", ErrInvalid, text)
		}
		if _, twice := percent[text[:i]]; twice {
			return nil, fmt.Errorf("%w: duplicate upstream %s", ErrInvalid, text[:i])
		}
		percent[text[:i]], sum = float64(hundredths)/100, sum+hundredths
	}
	if sum != 100_00 {
		return nil, fmt.Errorf("%w: the percentages add up to %v: write percentages that add up to 100", ErrInvalid, float64(sum)/100)
	}
	return percent, nil
}

// parseHundredths reads a percentage in decimal digits, to at most a hundredth.
func parseHundredths(text string) (hundredths int, ok bool) {
	p, err := strconv.ParseFloat(text, 64)
	if err != nil || !(p >= 0 && p <= 100) || strings.Trim(text, "0123456789.") != "" {
		return 0, false
	}
	whole := math.Round(p * 100)
	return int(whole), math.Abs(whole-p*100) < 1e-6
}
