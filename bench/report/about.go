package report

import (
	"fmt"
	"time"
)

// About returns an estimate in words.
func About(d time.Duration) string {
	switch {
	case d < 8*time.Second:
		return "a few seconds"
	case d < 90*time.Second:
		return fmt.Sprintf("about %d seconds", int(d.Round(5*time.Second).Seconds()))
	case d < 90*time.Minute:
		return fmt.Sprintf("about %d minutes", int(d.Round(time.Minute).Minutes()))
	}
	return fmt.Sprintf("about %.1f hours", d.Hours())
}
