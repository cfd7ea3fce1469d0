package report

// A RoundFigure is one figure of the rounds of a comparison. R is a struct with a field for each figure.
type RoundFigure[R any] struct {
	Name string // name in JSON
	Of   func(*R) *Number
}

// value returns the figure of a round.
func (f *RoundFigure[R]) value(round *R) Number { return *f.Of(round) }

// SampleOf returns the values of a figure in all rounds.
func SampleOf[R any](rounds []R, figure func(*R) Number) Sample {
	s := make(Sample, len(rounds))
	for i := range rounds {
		s[i] = float64(figure(&rounds[i]))
	}
	return s
}

// Medians returns a round with the median of each figure.
func Medians[R any](figures []RoundFigure[R], rounds []R) *R {
	medians := new(R)
	for _, f := range figures {
		*f.Of(medians) = Number(SampleOf(rounds, f.value).Median())
	}
	return medians
}

// A FigureRatio is the ratio of a contestant's figure to another contestant's, round by round.
type FigureRatio struct {
	Figure string `json:"figure"`
	Band
}

// FigureRatios are the ratios for several figures.
type FigureRatios []*FigureRatio

// RoundRatios returns the ratios of rounds to the rounds of base, for each figure with a known ratio. usable
// returns a sample without the values for which there is no ratio. It may be nil.
func RoundRatios[R any](figures []RoundFigure[R], rounds, base []R, usable func(Sample) Sample) (all FigureRatios) {
	if usable == nil {
		usable = func(s Sample) Sample { return s }
	}
	for _, f := range figures {
		ratios := usable(SampleOf(rounds, f.value)).Over(usable(SampleOf(base, f.value)))
		if m := Number(ratios.Median()); m.Known() {
			low, high := ratios.Stray()
			all = append(all, &FigureRatio{f.Name, Band{Median: m, Low: Number(low), High: Number(high), Values: len(ratios)}})
		}
	}
	return all
}

// Of returns the ratio for a figure, or nil if there is none.
func (r FigureRatios) Of(figure string) *Band {
	for _, x := range r {
		if x.Figure == figure {
			return &x.Band
		}
	}
	return nil
}
