package live

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/proxy/config"
)

// The lines that changes stand on, as texts. A line is the part of the configuration that the change
// replaces, whichever way it is written.

// WeightLine is the line of a weight.
func WeightLine(weight int) string { return "weight: " + strconv.Itoa(weight) }

// StateLine is the line of an endpoint's state.
func StateLine(e *config.Endpoint) string { return fmt.Sprintf("%s, state: %s", e.Address, e.State) }

// EndpointLine is the whole line of an endpoint.
func EndpointLine(e *config.Endpoint) string {
	var b strings.Builder
	b.WriteString(e.Address.String())
	add := func(key string, value any, there bool) {
		if there {
			fmt.Fprintf(&b, ", %s: %v", key, value)
		}
	}
	add("name", e.Name, e.Name != e.Address.String())
	add("weight", e.Weight, e.Weight != 1)
	add("backup", e.Backup, e.Backup)
	add("zone", e.Zone, e.Zone != "")
	add("connections", e.Connections, e.Connections != 0)
	add("state", e.State, e.State != config.Ready)
	return b.String()
}

// DiscoverLine is the line of the source of discovered endpoints. On it stands the state of these: a source
// has no line for each of them that would stay the same.
func DiscoverLine(d *config.Discover) string {
	if d.File != nil {
		return "discover: file " + string(d.File.Path)
	}
	return fmt.Sprintf("discover: %s %s, port %d", d.DNS.Type, d.DNS.Name, d.DNS.Port)
}

// BindLine is the line of a listener's addresses.
func BindLine(l *config.Listener) string {
	list := make([]string, len(l.Bind))
	for i, b := range l.Bind {
		list[i] = b.String()
	}
	slices.Sort(list)
	return "bind: " + strings.Join(list, ", ")
}

// Percentages is a split in a word: shop:95,next:5. It is the line of a split as well.
func Percentages(split []config.Share, percent []float64) string {
	parts := make([]string, len(split))
	for i, share := range split {
		parts[i] = fmt.Sprintf("%s:%v", share.Upstream, percent[i])
	}
	return strings.Join(parts, ",")
}

// SplitLine is the line of a split.
func SplitLine(split []config.Share) string {
	percent := make([]float64, len(split))
	for i, share := range split {
		percent[i] = share.Percent
	}
	return Percentages(split, percent)
}

// ParsePercentages reads the word of Percentages, for a split among the same upstreams.
func ParsePercentages(split []config.Share, text string) ([]float64, bool) {
	parts := strings.Split(text, ",")
	if len(parts) != len(split) {
		return nil, false
	}
	percent := make([]float64, len(split))
	for i, part := range parts {
		value, ok := strings.CutPrefix(part, split[i].Upstream+":")
		p, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			return nil, false
		}
		percent[i] = p
	}
	return percent, true
}
