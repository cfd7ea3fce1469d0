package config

import "time"

// Values of [Listener].Lane.
const (
	LaneOff     = "off"
	LaneAuto    = "auto"
	LaneRequire = "require"
)

// Lane describes where and when sessions leave user space.
type Lane struct {
	Pos      Pos
	Default  string        `key:"default" default:"off" enum:"off auto require" doc:"The lane of listeners that write none. A reload applies it to them."`
	Devices  []string      `key:"devices" eg:"eth0" restart:"yes" doc:"Network devices that the packets of sessions arrive at, of clients and of endpoints: the ports of each TCP packet there are looked at. Empty: the loopback and every Ethernet device that has an address at the start."`
	Sessions int64         `key:"sessions" default:"16384" range:"16..4000000" restart:"yes" doc:"How many there may be at once; each takes some 840 bytes of the kernel's memory from the start. More stay in user space. A table that is adopted by lane.pins keeps its size: another one takes effect after a drain without lane.leave, or once the pins are removed, which ends the sessions in it."`
	After    time.Duration `key:"after" default:"100ms" range:"1ms..1h" restart:"yes" doc:"Age at which a session that has had two answers may leave; others are asked 20 times as late."`
	Pins     Path          `key:"pins" default:"" eg:"/sys/fs/bpf/penstock" restart:"yes" doc:"Directory of a BPF file system, for this process alone, made if it is missing, in which programs and sessions are pinned: those that have left survive the death of the process, and the next one adopts them. Empty: they are reset then."`
	Leave    bool          `key:"leave" default:"false" restart:"yes" doc:"With pins: as the process begins to drain, sessions that have left go on without it, and the next one adopts them; the drain is of the others. false: they drain like others, and are reset at its end."`
}

// WantsLane reports whether sessions of any listener may leave user space.
func (c *Config) WantsLane() bool { return c.laneMode(LaneAuto) || c.laneMode(LaneRequire) }

// RequiresLane reports whether a listener requires that.
func (c *Config) RequiresLane() bool { return c.laneMode(LaneRequire) }

func (c *Config) laneMode(mode string) bool {
	for _, l := range c.Listeners {
		if l.Lane == mode {
			return true
		}
	}
	return false
}

// UnlessLeft is behind the new value of lane.sessions where lane.leave is in force: the next process adopts the table with the sessions.
const UnlessLeft = ", if no session goes on over it"

// Lasting returns the keys that a process with this lane cannot change to those of next.
func (l *Lane) Lasting(next *Lane) []KeyChange {
	was := *l
	was.Default = next.Default // listeners have it
	return new(differ).keys(root().byKey["lane"], &was, next)
}

// laneDefault gives listeners that write no lane that of the section.
func (l *loader) laneDefault() {
	for _, ln := range l.cfg.Listeners {
		if !l.given(&ln.Lane) {
			ln.Lane = l.cfg.Lane.Default
		}
	}
}
