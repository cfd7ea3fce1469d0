package limit

import (
	"errors"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/internal/source"
)

// ErrDeniedNow means that the source is denied by an operator, beside the rules of the configuration.
var ErrDeniedNow = errors.New("source denied by an operator")

// A Denial denies sources, at one listener or at all.
type Denial struct {
	Source   source.Rule
	Listener string // empty: all
}

// Denials are denials that change while clients come. The zero value denies none; so does nil. It is
// safe for concurrent use.
type Denials struct{ current atomic.Pointer[denialSets] }

// denialSets do not change.
type denialSets struct {
	everywhere *source.Set
	at         map[string]*source.Set // by listener
}

// Set replaces all of them.
func (d *Denials) Set(list []Denial) {
	if len(list) == 0 {
		d.current.Store(nil)
		return
	}
	rules := make(map[string][]source.Rule)
	for _, one := range list {
		rules[one.Listener] = append(rules[one.Listener], one.Source)
	}
	sets := &denialSets{everywhere: source.NewSet(rules[""]), at: make(map[string]*source.Set)}
	for name, of := range rules {
		if name != "" {
			sets.at[name] = source.NewSet(of)
		}
	}
	d.current.Store(sets)
}

// Any reports whether there are any. If there are none a client need not be asked for its source.
func (d *Denials) Any() bool { return d != nil && d.current.Load() != nil }

// Check returns nil, or [ErrDeniedNow]; of a source that is not known [source.ErrUnknown], if there are
// any denials.
func (d *Denials) Check(listener string, src source.Source) error {
	if d == nil {
		return nil
	}
	sets := d.current.Load()
	switch {
	case sets == nil:
		return nil
	case !src.Known():
		return source.ErrUnknown
	case sets.everywhere.Contains(src), sets.at[listener].Contains(src):
		return ErrDeniedNow
	}
	return nil
}
