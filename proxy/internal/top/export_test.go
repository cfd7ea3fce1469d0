package top

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/penstock/penstock/proxy/admin"
)

func Looked(l Look, err error) tea.Msg { return lookMsg{l, err} }

func Due() tea.Msg { return dueMsg{} }

var Environment = environment

func Judged(y admin.Why) tea.Msg { return whyMsg{y, nil} }

// Pause is the time after a look that took so long.
func Pause(took, interval time.Duration) time.Duration {
	return (&Look{Took: took}).pause(interval)
}
