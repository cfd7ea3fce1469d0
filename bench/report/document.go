package report

import "time"

// Format is the number of the Document's present format.
const Format = 2

// Head is the beginning of the documents of all commands. Each command numbers its own formats. A new field keeps
// the number. If a field is removed or gets another meaning, the number changes.
type Head struct {
	Format         int       `json:"format"`
	Penstock       string    `json:"penstock"` // the version of the program
	Command        string    `json:"command"`
	Began          time.Time `json:"began"`
	ElapsedSeconds Number    `json:"elapsed_seconds"`
	Interrupted    bool      `json:"interrupted"` // the rest has only the results before that
	Machine        Machine   `json:"machine"`
	// NetworkNamespace says that the run had a separate network namespace. If not, NamespaceMissing says why.
	NetworkNamespace bool   `json:"network_namespace"`
	NamespaceMissing string `json:"namespace_missing,omitempty"`
}

// Document is the result of penstock-bench run and lane, and the content of their --json. A field's name has the
// unit. GB and MB are decimal. A figure that was not measured is null.
type Document struct {
	Head
	Method Method `json:"method"`
	// Contestants are the contestants that took part. LeftOut are the contestants that could not take part.
	Contestants []Contestant `json:"contestants"`
	LeftOut     []LeftOut    `json:"left_out,omitempty"`
	Scenarios   []*Scenario  `json:"scenarios"`
	// Standings compare Penstock's results with its goals, see Judge.
	Standings []Standing `json:"standings,omitempty"`
	// Failures say why the exit code is 1. They are goals that were missed, failures of Penstock's own engines or
	// of the baseline, and requested contestants that never started. With exit code 0 there are none.
	Failures []string `json:"failures,omitempty"`
}

// Machine is the machine of the measurement. An empty text is unknown.
type Machine struct {
	CPU         string `json:"cpu"`
	CPUs        int    `json:"cpus"` // processors that this process may use
	MemoryBytes int64  `json:"memory_bytes"`
	Kernel      string `json:"kernel"`
	Go          string `json:"go"`
	Governor    string `json:"governor,omitempty"` // of CPU frequency scaling
	User        string `json:"user"`               // "root", or "ordinary user"
}

// Method says how the results were measured.
type Method struct {
	Baseline     string `json:"baseline"`
	Rounds       int    `json:"rounds"`
	TrialSeconds Number `json:"trial_seconds"`
	// Network says how the hosts of the load, the contestants and the sink are joined: veth or loss. It is empty
	// if they are one host.
	Network string `json:"network,omitempty"`
	// SystemCallCounter is the tool that counted system calls. If it is empty, SystemCallsMissing says why.
	SystemCallCounter  string `json:"system_call_counter,omitempty"`
	SystemCallsMissing string `json:"system_calls_missing,omitempty"`
	IdleSessions       int    `json:"idle_sessions"`
	KernelSlab         string `json:"kernel_slab,omitempty"` // source of an Idle's SlabBytes
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

// Scenario is a workload with the results of the contestants.
type Scenario struct {
	Name         string `json:"name"`
	Title        string `json:"title"`
	Workload     string `json:"workload"` // bulk, echo, connect, idle
	Connections  int    `json:"connections,omitempty"`
	MessageBytes int    `json:"message_bytes,omitempty"`
	Rounds       int    `json:"rounds"`
	TrialSeconds Number `json:"trial_seconds"` // planned
	// Cells summarize the trials, the baseline's first. Trials are all trials, in the order in which they were
	// made.
	Cells  []*Cell  `json:"cells"`
	Trials []*Trial `json:"trials"`
}

// Role is the role of a contestant in a trial or a cell.
type Role string

const (
	// Contender is measured beside the baseline.
	Contender Role = "contestant"
	// Baseline is the contestant beside which the others are measured.
	Baseline Role = "baseline"
	// Again is the baseline measured beside itself, as if it were another contestant. The distance of its ratios
	// from 1 is the noise of this run.
	Again Role = "again"
	// Counting is a trial that only counts system calls. Counting slows the contestant, so no other figure of such
	// a trial is used.
	Counting Role = "counting"
)

// Cell is one contestant in one scenario.
type Cell struct {
	Contestant string `json:"contestant"`
	Role       Role   `json:"role"` // Contender, Baseline or Again
	// Figures are the figures by name, see the function Figures. A cell may have none.
	Figures map[string]Summary `json:"figures,omitempty"`
	// Rounds are the ratios of each trial to the baseline's trial beside it.
	Rounds []Round `json:"rounds,omitempty"`
	// Failed is why the contestant has no result here, in its own last words.
	Failed string `json:"failed,omitempty"`
	// Void is why the results do not count.
	Void  string   `json:"void,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

// Summary is one figure of a cell over its rounds.
type Summary struct {
	Band
	// Ratio is the ratio to the baseline's trial beside each trial; null for the baseline itself.
	Ratio *Band `json:"ratio"`
}

// Band is a median with the spread of the values.
type Band struct {
	Median Number `json:"median"`
	Low    Number `json:"low"` // the smallest value; from ten rounds on, the 10th percentile
	High   Number `json:"high"`
	Values int    `json:"values"` // number of trials with the figure
}

// Round compares one trial with the baseline's trial beside it.
type Round struct {
	Round         int               `json:"round"`          // from 1
	BaselineFirst bool              `json:"baseline_first"` // the baseline's trial came first
	Ratios        map[string]Number `json:"ratios"`         // by the figure's name
}

// Trial is one contestant in one plan, once, in raw numbers. The contestant's numbers include all its processes
// and threads. The machine's numbers include all its processors.
type Trial struct {
	Contestant string `json:"contestant"`
	Role       Role   `json:"role"`
	Round      int    `json:"round"` // from 1
	// Beside says to which pair a Baseline's trial belongs: it is the name of the contestant beside it, or "again"
	// for itself. If it is empty, the contestants of a round are compared with the mean of its Baseline and its
	// Again, and Again is compared with Baseline.
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
	SplicedBytes      Number `json:"spliced_bytes"` // as the contestant counts them
	// WarmupBytes are the part of ReceivedBytes that came before the time that counts.
	WarmupBytes int64 `json:"warmup_bytes,omitempty"`
	// LaneShare is how much the lane carried of the bytes in the time that counts, as a share and as the
	// contestant counts them. It is null if the contestant has no lane.
	LaneShare *Number `json:"lane_share,omitempty"`
	// WarmupSeconds is the time before the time that counts.
	WarmupSeconds Number `json:"warmup_seconds,omitempty"`
	Idle          *Idle  `json:"idle,omitempty"`
}

// Idle has the resources of sessions that carried 64 KiB both ways and then were idle: the resources with the
// sessions, minus the resources without them.
type Idle struct {
	Sessions     int    `json:"sessions"`
	RssAnonBytes Number `json:"rss_anon_bytes"` // of the contestant
	// SlabBytes is the kernel's memory for all ends of all sessions. It is null if the memory without sessions
	// before and after differs by more than a quarter of what the sessions added.
	SlabBytes   Number `json:"slab_bytes"`
	Descriptors Number `json:"descriptors"` // of the contestant
}
