package report

import "time"

// Format is the number of the Document's format.
const Format = 2

// Head is what the documents of all commands begin with. Each command numbers its own formats: adding a field keeps the number, changing
// the meaning of a field or removing it is a new number.
type Head struct {
	Format         int       `json:"format"`
	Penstock       string    `json:"penstock"` // the version of the program
	Command        string    `json:"command"`
	Began          time.Time `json:"began"`
	ElapsedSeconds Number    `json:"elapsed_seconds"`
	Interrupted    bool      `json:"interrupted"` // the rest is then the results until that
	Machine        Machine   `json:"machine"`
	// NetworkNamespace: the run had one of its own. If not, NamespaceMissing
	// says why.
	NetworkNamespace bool   `json:"network_namespace"`
	NamespaceMissing string `json:"namespace_missing,omitempty"`
}

// Document is the result of penstock-bench run and lane, and the content of their --json. A unit is
// part of the field's name; GB and MB are decimal; an unmeasured figure is null.
type Document struct {
	Head
	Method Method `json:"method"`
	// Contestants are the contestants that took part, LeftOut the contestants that could not.
	Contestants []Contestant `json:"contestants"`
	LeftOut     []LeftOut    `json:"left_out,omitempty"`
	Scenarios   []*Scenario  `json:"scenarios"`
	// Standings are the goals of Penstock and its results, see Judge.
	Standings []Standing `json:"standings,omitempty"`
	// Failures say why the exit code is 1: thresholds that were missed,
	// failures of Penstock's own engines or of the baseline, contestants that
	// were asked for and never started. Empty if it is 0.
	Failures []string `json:"failures,omitempty"`
}

// Machine is the machine of the measurement. An empty text is unknown.
type Machine struct {
	CPU         string `json:"cpu"`
	CPUs        int    `json:"cpus"` // that this process may run on
	MemoryBytes int64  `json:"memory_bytes"`
	Kernel      string `json:"kernel"`
	Go          string `json:"go"`
	Governor    string `json:"governor,omitempty"` // of frequency scaling
	User        string `json:"user"`               // "root", or "ordinary user"
}

// Method is how it was measured.
type Method struct {
	Baseline     string `json:"baseline"`
	Rounds       int    `json:"rounds"`
	TrialSeconds Number `json:"trial_seconds"`
	// Network is how the hosts of the load, the contestants and the sink are joined: veth, or loss; empty: they are one host.
	Network string `json:"network,omitempty"`
	// SystemCallCounter is the tool that counted system calls, empty if none did.
	// If there was none, SystemCallsMissing says why.
	SystemCallCounter  string `json:"system_call_counter,omitempty"`
	SystemCallsMissing string `json:"system_calls_missing,omitempty"`
	IdleSessions       int    `json:"idle_sessions"`
	KernelSlab         string `json:"kernel_slab,omitempty"` // the figure behind an Idle's SlabBytes
}

// Contestant is a contestant that took part.
type Contestant struct {
	Name    string `json:"name"`
	About   string `json:"about"`
	Version string `json:"version,omitempty"`
}

// LeftOut is a contestant that could not take part.
type LeftOut struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Scenario is a workload and the contestants' results.
type Scenario struct {
	Name         string `json:"name"`
	Title        string `json:"title"`
	Workload     string `json:"workload"` // bulk, echo, connect, idle
	Connections  int    `json:"connections,omitempty"`
	MessageBytes int    `json:"message_bytes,omitempty"`
	Rounds       int    `json:"rounds"`
	TrialSeconds Number `json:"trial_seconds"` // planned
	// Cells are the summaries of the trials, the baseline first. Trials are all trials, in the
	// order of time.
	Cells  []*Cell  `json:"cells"`
	Trials []*Trial `json:"trials"`
}

// Role is the part that a contestant plays in a trial or a cell.
type Role string

const (
	// Contender is measured beside the baseline.
	Contender Role = "contestant"
	// Baseline is the contestant that the others are measured beside.
	Baseline Role = "baseline"
	// Again is the baseline measured beside itself, as if it were another contestant: the
	// distance of its ratios from 1 is the noise of this run.
	Again Role = "again"
	// Counting is a trial that only counts system calls. Counting slows the contestant, so
	// nothing else of it is used.
	Counting Role = "counting"
)

// Cell is one contestant under one scenario.
type Cell struct {
	Contestant string `json:"contestant"`
	Role       Role   `json:"role"` // Contender, Baseline or Again
	// Figures are by name, see Figures; empty for a cell without any.
	Figures map[string]Summary `json:"figures,omitempty"`
	// Rounds are the ratios of the trials to the baseline's beside them.
	Rounds []Round `json:"rounds,omitempty"`
	// Failed is why the contestant lost this cell, in its own last words.
	Failed string `json:"failed,omitempty"`
	// Void is why the results do not count.
	Void  string   `json:"void,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

// Summary is one figure of a cell over its rounds.
type Summary struct {
	Median Number `json:"median"`
	Low    Number `json:"low"` // the least; from ten rounds on, the 10th percentile
	High   Number `json:"high"`
	Values int    `json:"values"` // trials that have it
	// Ratio is to the baseline's trial beside each; null for the baseline itself.
	Ratio *Band `json:"ratio"`
}

// Band is a median and how far the values stray.
type Band struct {
	Median Number `json:"median"`
	Low    Number `json:"low"`
	High   Number `json:"high"`
	Values int    `json:"values"`
}

// Round is one pair of trials.
type Round struct {
	Round         int               `json:"round"`          // from 1
	BaselineFirst bool              `json:"baseline_first"` // the baseline's trial came first
	Ratios        map[string]Number `json:"ratios"`         // by the figure's name
}

// Trial is one contestant under one plan, once, in raw numbers. The numbers of the
// contestant are of all its processes and threads, the machine's numbers of all
// its processors.
type Trial struct {
	Contestant string `json:"contestant"`
	Role       Role   `json:"role"`
	Round      int    `json:"round"` // from 1
	// Beside separates pairs: a Baseline's trial is beside that contestant ("again" for
	// itself). If it is empty, the contestants of a round are compared with the mean of its
	// Baseline and its Again, and Again with Baseline.
	Beside            string `json:"beside,omitempty"`
	StartSeconds      Number `json:"start_seconds"` // since the run began
	ElapsedSeconds    Number `json:"elapsed_seconds"`
	SentBytes         int64  `json:"sent_bytes"`     // by the load
	ReceivedBytes     int64  `json:"received_bytes"` // by the load
	Requests          int64  `json:"requests,omitempty"`
	Connections       int64  `json:"connections,omitempty"`
	LatencyP50Seconds Number `json:"latency_p50_seconds"`
	LatencyP99Seconds Number `json:"latency_p99_seconds"`
	CPUSeconds        Number `json:"cpu_seconds"`
	MachineCPUSeconds Number `json:"machine_cpu_seconds"`
	ContextSwitches   Number `json:"context_switches"`
	SystemCalls       Number `json:"system_calls"`
	SplicedBytes      Number `json:"spliced_bytes"` // by the contestant's own account
	// WarmupBytes are the part of ReceivedBytes from before the time that counts.
	WarmupBytes int64 `json:"warmup_bytes,omitempty"`
	// LaneShare is the part of the bytes in the time that counts that was carried by sessions which had left user space,
	// by the contestant's own account; null: it has no lane.
	LaneShare *Number `json:"lane_share,omitempty"`
	// WarmupSeconds is the time before the time that counts.
	WarmupSeconds Number `json:"warmup_seconds,omitempty"`
	Idle          *Idle  `json:"idle,omitempty"`
}

// Idle is the resources of sessions that carried 64 KiB both ways and then rested: with them,
// less without them.
type Idle struct {
	Sessions     int    `json:"sessions"`
	RssAnonBytes Number `json:"rss_anon_bytes"` // of the contestant
	// SlabBytes is the kernel's memory for all ends of all sessions. They are null if the
	// amount without sessions was not the same before and after, to a quarter of the
	// difference.
	SlabBytes   Number `json:"slab_bytes"`
	Descriptors Number `json:"descriptors"` // of the contestant
}
