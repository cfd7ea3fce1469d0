package doctor

import (
	"fmt"
	"time"
)

// loops is the lag of the event loops.
type loops struct {
	Count     int   `json:"loops"`
	LagP99    int64 `json:"lag_p99_us"` // of the loop with the largest, as the others
	LagMax    int64 `json:"lag_max_us"`
	LateP99   int64 `json:"timer_late_p99_us"`
	Turns     int64 `json:"turns"`
	LongTurns int64 `json:"long_turns"`

	place
}

func lookLoops(p *process, r *Running) facts {
	f := loops{Count: len(r.Loops), place: p.place}
	for _, l := range r.Loops {
		f.LagP99, f.LagMax = max(f.LagP99, l.LagP99.Microseconds()), max(f.LagMax, l.LagMax.Microseconds())
		f.LateP99 = max(f.LateP99, l.TimerLateP99.Microseconds())
		f.Turns, f.LongTurns = f.Turns+l.Turns, f.LongTurns+l.LongTurns
	}
	return f
}

// muchLag is from where on the turns of a loop are worth a word.
const muchLag = 4096 // µs

func (f loops) judge() finding {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	v := finding{state: OK, found: fmt.Sprintf("%d; of their turns 99 %% took up to %v, the longest %v, and %s of %s more than 1 ms", f.Count, us(f.LagP99), us(f.LagMax), exact(f.LongTurns), exact(f.Turns))}
	if f.LagP99 < muchLag && f.LateP99 < muchLag {
		return v
	}
	v.state, v.cost = Degraded, "a byte that has come waits for its loop for that long"
	if f.LateP99 > 0 {
		v.cost += fmt.Sprintf("; timers are late by up to %v", us(f.LateP99))
	}
	v.mend = append([]string{"fewer others on these CPUs: see penstock trace for their waits, and cpu-quota", "more CPUs, with limits.loops.count of the configuration"}, f.service("CPUWeight=1000")...)
	return v
}

// throttling is how often the cgroup's quota has held the process back.
type throttling struct {
	Quota     number `json:"cgroup_quota_us,omitzero"`
	Period    number `json:"cgroup_period_us,omitzero"`
	Periods   number `json:"periods,omitzero"`
	Throttled number `json:"throttled_periods,omitzero"`
	Time      number `json:"throttled_us,omitzero"`

	place
}

func lookThrottling(p *process, _ *Running) facts {
	f := throttling{place: p.place}
	f.Quota, f.Period = p.cpuLimit()
	for _, dir := range p.cgroups("cpu") {
		stat := dir + "/cpu.stat"
		if n := p.event(stat, "nr_throttled"); n.value >= f.Throttled.value && n.known {
			f.Throttled, f.Periods, f.Time = n, p.event(stat, "nr_periods"), p.event(stat, "throttled_usec")
			if ns := p.event(stat, "throttled_time"); ns.known { // of the first version, in nanoseconds
				f.Time = known(ns.value / 1000)
			}
		}
	}
	return f
}

func (f throttling) judge() finding {
	if !f.Quota.known && f.Throttled.value == 0 {
		return finding{state: OK, found: "no quota by the cgroup"}
	}
	found := fmt.Sprintf("held back in %s of %s periods, for %v together", f.Throttled, f.Periods, (time.Duration(f.Time.value) * time.Microsecond).Round(time.Millisecond))
	if f.Quota.known {
		found = fmt.Sprintf("%.3g CPUs; ", float64(f.Quota.value)/float64(max(f.Period.value, 1))) + found
	}
	if f.Throttled.value == 0 {
		return finding{state: OK, found: found}
	}
	var mend []string
	if f.container {
		mend = append(mend, f.started("with a larger --cpus=, or none", "resources: {limits: {cpu: ...}}, larger or left out"))
	}
	mend = append(mend, f.service("CPUQuota=, larger or empty")...)
	mend = append(mend, "fewer loops than the quota has CPUs: limits.loops.count, or --loops")
	return finding{state: Degraded, found: found, cost: "every session stands still meanwhile", mend: mend}
}
