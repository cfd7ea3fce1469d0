package limit

import (
	"errors"

	"github.com/penstock/penstock/proxy/source"
)

// ErrDenied says that the source is on the list of those who may not come in, or not on that
// of those who may.
var ErrDenied = errors.New("source not allowed")

// An Access says which sources may come in. The zero value lets everybody in of whom it is
// known where they come from.
type Access struct {
	Allow *source.Set // empty: everybody
	Deny  *source.Set // wins over Allow
}

// Limits reports whether it keeps anybody out of whom it is known where they come from.
func (a *Access) Limits() bool { return a.Allow.Len() > 0 || a.Deny.Len() > 0 }

// Check returns nil, or [ErrDenied]; of a source that is not known [source.ErrUnknown].
func (a *Access) Check(of source.Source) error {
	switch {
	case !of.Known():
		return source.ErrUnknown
	case a.Deny.Contains(of), a.Allow.Len() > 0 && !a.Allow.Contains(of):
		return ErrDenied
	}
	return nil
}
