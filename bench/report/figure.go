package report

// Figure is a number that is computed from a trial, and compared.
type Figure struct {
	Name  string // name in the JSON document
	Title string // title of the table's column
	Label string // in words
	Write func(float64) string
	More  bool // more of it is better; otherwise less
	// Main says that its spread and the spread of its ratio are shown. Plain says that its ratio is not shown.
	Main, Plain bool
	of          func(*Trial) float64
}

// counted are the figures of Counting trials. Other trials do not have them.
var counted = map[string]bool{"system_calls_per_mb": true, "system_calls_per_request": true, "system_calls_per_connection": true}

// Figures returns the compared figures of a workload, the most important first. Their names are keys in the JSON
// document.
func Figures(workload string) []Figure {
	switch workload {
	case "bulk":
		return bulkFigures
	case "echo":
		return append(echoFigures, perOperation("request", "req", func(t *Trial) int64 { return t.Requests })...)
	case "connect":
		return append(connectFigures, perOperation("connection", "conn", func(t *Trial) int64 { return t.Connections })...)
	case "idle":
		return idleFigures
	}
	return nil
}

var bulkFigures = []Figure{
	{Name: "gigabytes_per_second", Title: "GB/s", Label: "throughput", Write: Digits, More: true, Main: true, of: func(t *Trial) float64 { return t.gigabytes() / float64(t.ElapsedSeconds) }},
	{Name: "cpu_seconds_per_gb", Title: "CPU s/GB", Label: "the proxy's CPU per GB", Write: Digits, Main: true, of: func(t *Trial) float64 { return float64(t.CPUSeconds) / t.gigabytes() }},
	{Name: "machine_cpu_seconds_per_gb", Title: "machine s/GB", Label: "the machine's CPU per GB", Write: Digits, of: func(t *Trial) float64 { return float64(t.MachineCPUSeconds) / t.gigabytes() }},
	{Name: "context_switches_per_gb", Title: "switches/GB", Label: "context switches per GB", Write: Count, Plain: true, of: func(t *Trial) float64 { return float64(t.ContextSwitches) / t.gigabytes() }},
	{Name: "system_calls_per_mb", Title: "calls/MB", Label: "system calls per MB", Write: Count, Plain: true, of: func(t *Trial) float64 { return float64(t.SystemCalls) / t.gigabytes() / 1e3 }},
}

var echoFigures = append([]Figure{
	{Name: "requests_per_second", Title: "req/s", Label: "requests per second", Write: Count, More: true, Main: true, of: func(t *Trial) float64 { return float64(t.Requests) / float64(t.ElapsedSeconds) }},
}, latencies...)

var connectFigures = append([]Figure{
	{Name: "connections_per_second", Title: "conn/s", Label: "connections per second", Write: Count, More: true, Main: true, of: func(t *Trial) float64 { return float64(t.Connections) / float64(t.ElapsedSeconds) }},
}, latencies...)

var latencies = []Figure{
	{Name: "latency_p50_seconds", Title: "p50", Label: "median latency", Write: Seconds, Plain: true, of: func(t *Trial) float64 { return float64(t.LatencyP50Seconds) }},
	{Name: "latency_p99_seconds", Title: "p99", Label: "99th percentile of latency", Write: Seconds, Plain: true, of: func(t *Trial) float64 { return float64(t.LatencyP99Seconds) }},
}

func perOperation(name, short string, n func(*Trial) int64) []Figure {
	per := func(x func(*Trial) Number) func(*Trial) float64 {
		return func(t *Trial) float64 { return float64(x(t)) / float64(n(t)) }
	}
	return []Figure{
		{Name: "cpu_seconds_per_" + name, Title: "CPU/" + short, Label: "the proxy's CPU per " + name, Write: Seconds, Main: true, of: per(func(t *Trial) Number { return t.CPUSeconds })},
		{Name: "machine_cpu_seconds_per_" + name, Title: "machine", Label: "the machine's CPU per " + name, Write: Seconds, Plain: true, of: per(func(t *Trial) Number { return t.MachineCPUSeconds })},
		{Name: "context_switches_per_" + name, Title: "switches", Label: "context switches per " + name, Write: Count, Plain: true, of: per(func(t *Trial) Number { return t.ContextSwitches })},
		{Name: "system_calls_per_" + name, Title: "calls", Label: "system calls per " + name, Write: Count, Plain: true, of: per(func(t *Trial) Number { return t.SystemCalls })},
	}
}

var idleFigures = []Figure{
	{Name: "rss_anon_bytes_per_session", Title: "user memory", Label: "user memory per idle session", Write: Bytes, Main: true, of: perSession(func(i *Idle) Number { return i.RssAnonBytes })},
	{Name: "slab_bytes_per_session", Title: "kernel slab", Label: "kernel slab per idle session", Write: Bytes, Main: true, of: perSession(func(i *Idle) Number { return i.SlabBytes })},
	{Name: "descriptors_per_session", Title: "descriptors", Label: "descriptors per idle session", Write: Digits, of: perSession(func(i *Idle) Number { return i.Descriptors })},
}

func perSession(x func(*Idle) Number) func(*Trial) float64 {
	return func(t *Trial) float64 {
		if t.Idle == nil {
			return float64(Unmeasured())
		}
		return float64(x(t.Idle)) / float64(t.Idle.Sessions)
	}
}

// gigabytes returns the gigabytes received in the time that counts.
func (t *Trial) gigabytes() float64 { return float64(t.ReceivedBytes-t.WarmupBytes) / 1e9 }

// value returns the figure of the trial. A Counting trial has only system calls.
func (f *Figure) value(t *Trial) float64 {
	if (t.Role == Counting) != counted[f.Name] {
		return float64(Unmeasured())
	}
	return f.of(t)
}
