// Package html writes the results of a bench as one page that needs nothing else: the
// figures are inside, the charts are drawn in the browser, and no request leaves it.
package html

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/culvert-io/culvert/internal/bench"
)

// About says where results come from.
type About struct {
	File    string    `json:"file"`
	GPU     string    `json:"gpu"`
	Machine string    `json:"machine"` // "real" or "software"
	Kernel  string    `json:"kernel"`
	Version string    `json:"version"`
	Command string    `json:"command"`
	Time    time.Time `json:"time"`
}

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	style string
	//go:embed page.js
	script string
	//go:embed heat.js
	heatScript string // uses page.js

	page = template.Must(template.New("page").Parse(pageText))
)

// A result has its heat map, which other outputs leave out.
type result struct {
	*bench.Result
	Heat *bench.HeatMap `json:"heat,omitempty"`
}

// Write writes the page.
func Write(w io.Writer, about About, results []*bench.Result) error {
	list := make([]result, len(results))
	for i, r := range results {
		list[i] = result{r, r.Heat}
	}
	data, err := json.Marshal(struct {
		About   About    `json:"about"`
		Results []result `json:"results"`
	}{about, list})
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return page.Execute(w, struct {
		About  About
		Style  template.CSS
		Script template.JS
		// Marshal escapes <, > and &, so that a file name cannot end the element.
		Data template.JS
	}{about, template.CSS(style), template.JS(script + heatScript), template.JS(data)})
}
