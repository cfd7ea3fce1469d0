package limit

import (
	"errors"

	"github.com/penstock/penstock/proxy/internal/source"
)

// ErrDenied means that the source is on the list of denied ones, or not on that of allowed
// ones.
var ErrDenied = errors.New("source not allowed")

// An Access is the rules for sources. The zero value allows every client with a known source.
type Access struct {
	Allow *source.Set // empty: every known source
	Deny  *source.Set // wins over Allow
}

// Limits reports whether it denies any client with a known source.
func (a *Access) Limits() bool { return a.Allow.Len() > 0 || a.Deny.Len() > 0 }

// Check returns nil, or [ErrDenied]; of a source that is not known [source.ErrUnknown].
func (a *Access) Check(src source.Source) error {
	switch {
	case !src.Known():
		return source.ErrUnknown
	case a.Deny.Contains(src), a.Allow.Len() > 0 && !a.Allow.Contains(src):
		return ErrDenied
	}
	return nil
}
