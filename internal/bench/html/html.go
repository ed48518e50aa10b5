// Package html writes the results of a bench as one page that needs nothing else: the
// figures are inside, the charts are drawn in the browser, and no request leaves it.
package html

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"
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
	// Drawing is the way between drives and GPU, in lines of text; "" if it is not known.
	Drawing string `json:"drawing,omitempty"`
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
)

const softwareNote = `<p class="warning" role="note">Software machine: these figures say nothing about hardware.</p>`

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
	note := ""
	if about.Machine == "software" {
		note = softwareNote
	}
	drawing := ""
	if about.Drawing != "" {
		drawing = "<section><h2>Machine</h2><pre class=\"scroll\">" + html.EscapeString(about.Drawing) + "</pre></section>"
	}
	// Not html/template: its calls of methods by name make the linker keep the methods of
	// all types, 3.5 of 21.5 MB.
	_, err = strings.NewReplacer(
		"{{file}}", html.EscapeString(about.File),
		"{{gpu}}", html.EscapeString(about.GPU),
		"{{note}}", note,
		"{{drawing}}", drawing,
		"{{command}}", html.EscapeString(about.Command),
		"{{version}}", html.EscapeString(about.Version),
		"{{kernel}}", html.EscapeString(about.Kernel),
		"{{time}}", about.Time.Format("2006-01-02 15:04:05 MST"),
		"{{style}}", style,
		"{{script}}", script+heatScript,
		"{{data}}", string(data), // Marshal escapes <, > and &, so that a file name cannot end the element
	).WriteString(w, pageText)
	return err
}
