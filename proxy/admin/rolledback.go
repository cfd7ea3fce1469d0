package admin

import "time"

// RolledBack is the result of a rollback.
type RolledBack struct {
	Generation int      `json:"generation"` // in force now
	Changes    []string `json:"changes"`    // readable lines
	// Ended are the changes by hand that ended with it, with the reasons, and Restored those that the reload
	// had ended.
	Ended    []LiveChange `json:"ended"`
	Restored []LiveChange `json:"restored"`
	// Refused is the file, which still has the other configuration; nil: it does not.
	Refused *RefusedFile `json:"refused,omitempty"`
}

// A RefusedReload is a reload that was refused, and changed nothing.
type RefusedReload struct {
	At    time.Time `json:"at"`    // when it was refused
	By    string    `json:"by"`    // its author
	Error string    `json:"error"` // its reason: a line, without the content of the file
}

// A RefusedFile is a configuration file whose content was rolled back: it is not in force, and the next reload
// or start brings it back. A plan shows the difference.
type RefusedFile struct {
	Path       string    `json:"path"`       // absolute
	Generation int       `json:"generation"` // of that content
	At         time.Time `json:"at"`         // of the rollback
	By         string    `json:"by"`         // its author
	Why        string    `json:"why"`        // its reason
	Automatic  bool      `json:"automatic"`  // it came by itself
}
