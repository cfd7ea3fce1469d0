package admin

import "time"

// An EndpointVerb is a way in which an endpoint is changed by hand.
type EndpointVerb string

// The ways in which an endpoint is changed.
const (
	EndpointAdd    EndpointVerb = "add"
	EndpointRemove EndpointVerb = "remove"
	EndpointWeight EndpointVerb = "weight"
	EndpointReady  EndpointVerb = "ready" // it gets clients again, also after remove
	EndpointDrain  EndpointVerb = "drain" // no new clients; its sessions have drain_timeout, and it is checked
	EndpointMaint  EndpointVerb = "maint" // no new clients; its sessions go on, and it is not checked
)

// An EndpointChange is a change of an endpoint by hand.
type EndpointChange struct {
	What     EndpointVerb
	Upstream string
	Endpoint string // its name or its address; of EndpointAdd its address
	Weight   int    // of EndpointAdd and EndpointWeight

	// Of EndpointAdd.
	Name        string // empty: its address
	Zone        string
	Backup      bool
	Connections int64 // limit of its sessions; 0: none
}

// EndpointChanged is the result of an [EndpointChange].
type EndpointChanged struct {
	Endpoint string `json:"endpoint"` // its name
	From     string `json:"from"`
	To       string `json:"to"` // equal to From: nothing was changed
	// Weight is its weight now; with 0 it gets no clients. 0 as well if it is removed.
	Weight int `json:"weight"`
	// Taking is the number of endpoints of the upstream that may get clients now, whatever their checks say.
	Taking int `json:"taking"`
	// Unkept is why the change ends with the process; empty: it survives a restart.
	Unkept string `json:"unkept,omitempty"`
}

// A LiveChange is a change by hand that is in force.
type LiveChange struct {
	What     string    `json:"what"`               // a readable line
	Kind     string    `json:"kind"`               // endpoint added, endpoint removed, endpoint state, endpoint weight, listener drained or split
	Upstream string    `json:"upstream,omitempty"` // that it is about, as with Endpoint and Listener; left out: it is about none
	Endpoint string    `json:"endpoint,omitempty"`
	Listener string    `json:"listener,omitempty"`
	Line     string    `json:"line,omitempty"` // of the configuration, that it stands on
	By       string    `json:"by"`             // whose request it was
	Since    time.Time `json:"since"`          // when it was made
	// Waits is why the change has no effect now: its endpoint is not there.
	Waits string `json:"waits,omitempty"`
	// Ends is, in a [Plan], why a reload would end it; empty: it goes on.
	Ends string `json:"ends,omitempty"`
}

// A StateFile is the file that keeps changes by hand over a restart.
type StateFile struct {
	Path string `json:"path"` // absolute
	// Problem is why they are not kept, or what was wrong with the file at the start.
	Problem string `json:"problem,omitempty"`
}
