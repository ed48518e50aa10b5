package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/culvert-io/culvert/internal/cufileconf"
	"github.com/culvert-io/culvert/internal/env"
)

// A configLine says what one setting of cuFile does here.
type configLine struct {
	Where   string `json:"where"`
	Key     string `json:"key"`
	Value   string `json:"value"`
	Effect  string `json:"effect"`
	mistake bool
}

// A configReport explains a cufile.json and the CUFILE_ variables, which win over it.
type configReport struct {
	File  string       `json:"file"`
	Lines []configLine `json:"lines"`
}

// explain does check --config.
func (o *checkOptions) explain(a []string, out io.Writer) error {
	if len(a) > 0 || o.require != "" {
		return usageError{errors.New("--config needs no PATH and no --require-route")}
	}
	r, err := explainConfig(o.config)
	if err != nil {
		return err
	}
	return errors.Join(show(out, o.json, r), r.mistakes())
}

func explainConfig(name string) (*configReport, error) {
	file, err := cufileconf.ReadFile(name)
	if err != nil {
		return nil, err
	}
	variables := cufileconf.FromEnvironment(env.Get)
	v := cufileconf.Of(file, variables)
	r := &configReport{File: name}
	for _, list := range [][]cufileconf.Setting{file, variables} {
		for i := range list {
			s := &list[i]
			r.Lines = append(r.Lines, configLine{s.Where(), s.Key, s.Value, v.Effect(s), s.Unknown || s.Err != nil})
		}
	}
	return r, nil
}

// String has a line for each setting.
func (r *configReport) String() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, l := range r.Lines {
		fmt.Fprintf(t, "%s\t%s = %s\t%s\n", l.Where, l.Key, l.Value, l.Effect)
	}
	t.Flush()
	return b.String()
}

// mistakes is the error for unknown keys and invalid values.
func (r *configReport) mistakes() error {
	n := 0
	for _, l := range r.Lines {
		if l.mistake {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("check %s: %d of %d settings are unknown or invalid", r.File, n, len(r.Lines))
}
