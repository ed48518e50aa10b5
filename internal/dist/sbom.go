package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-io/culvert"
)

// The parts of an SPDX 2.3 document that we fill in.
type (
	document struct {
		SPDXVersion       string         `json:"spdxVersion"`
		DataLicense       string         `json:"dataLicense"`
		SPDXID            string         `json:"SPDXID"`
		Name              string         `json:"name"`
		DocumentNamespace string         `json:"documentNamespace"`
		CreationInfo      creation       `json:"creationInfo"`
		Packages          []spdxPackage  `json:"packages"`
		Relationships     []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		SPDXID           string      `json:"SPDXID"`
		Name             string      `json:"name"`
		VersionInfo      string      `json:"versionInfo"`
		DownloadLocation string      `json:"downloadLocation"`
		FilesAnalyzed    bool        `json:"filesAnalyzed"`
		LicenseConcluded string      `json:"licenseConcluded"`
		LicenseDeclared  string      `json:"licenseDeclared"`
		CopyrightText    string      `json:"copyrightText"`
		Checksums        []checksum  `json:"checksums,omitempty"`
		ExternalRefs     []reference `json:"externalRefs,omitempty"`
	}
	checksum struct {
		Algorithm     string `json:"algorithm"`
		ChecksumValue string `json:"checksumValue"`
	}
	reference struct {
		ReferenceCategory string `json:"referenceCategory"`
		ReferenceType     string `json:"referenceType"`
		ReferenceLocator  string `json:"referenceLocator"`
	}
	relationship struct {
		SPDXElementID      string `json:"spdxElementId"`
		RelationshipType   string `json:"relationshipType"`
		RelatedSPDXElement string `json:"relatedSpdxElement"`
	}
)

const unknown = "NOASSERTION"

// printSBOM writes what the Go linker recorded in a binary. Licenses come from the
// table of the notices. The same binary and epoch give the same bytes.
func printSBOM(out io.Writer, binary, notices, epoch string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("sbom: %w", err)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("sbom: %w", err)
	}
	text, err := os.ReadFile(notices)
	if err != nil {
		return fmt.Errorf("sbom: licenses: %w", err)
	}
	created, err := creationTime(epoch)
	if err != nil {
		return fmt.Errorf("sbom: %w", err)
	}
	doc, err := billOf(filepath.Base(binary), info, sha256.Sum256(content), licenses(string(text)), created)
	if err != nil {
		return fmt.Errorf("sbom: %s: %w", binary, err)
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}

// creationTime is that of SOURCE_DATE_EPOCH, where it is set.
func creationTime(epoch string) (time.Time, error) {
	if epoch == "" {
		return time.Now().UTC(), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%q is not a number of seconds", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// licenses reads the rows "| module | version | license |" of the notices.
func licenses(notices string) map[string]string {
	table := map[string]string{}
	row := regexp.MustCompile(`(?m)^\| (\S+) \| v\S+ \| (\S+) \|$`)
	for _, m := range row.FindAllStringSubmatch(notices, -1) {
		table[m[1]] = m[2]
	}
	return table
}

func billOf(name string, info *debug.BuildInfo, sum [32]byte, licenses map[string]string, created time.Time) (*document, error) {
	digest := hex.EncodeToString(sum[:])
	doc := &document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", Name: name,
		DocumentNamespace: "https://github.com/culvert-io/culvert/spdx/" + name + "-" + culvert.Version + "-" + digest,
		CreationInfo:      creation{Created: created.Format(time.RFC3339), Creators: []string{"Tool: culvert-dist-" + culvert.Version}},
	}
	main := goPackage(info.Main.Path, "v"+culvert.Version, "Apache-2.0")
	main.Name, main.Checksums = name, []checksum{{"SHA256", digest}}
	doc.Packages = append(doc.Packages, main)
	doc.relate(doc.SPDXID, "DESCRIBES", main)
	doc.add(main, goPackage("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "BSD-3-Clause"))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		license, ok := licenses[m.Path]
		if !ok {
			return nil, fmt.Errorf("module %s has no license in the notices: add it to the table", m.Path)
		}
		doc.add(main, goPackage(m.Path, m.Version, license))
	}
	return doc, nil
}

// goPackage describes a module.
func goPackage(module, version, license string) spdxPackage {
	id := regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(module, "-")
	return spdxPackage{
		SPDXID: "SPDXRef-" + id, Name: module, VersionInfo: version, DownloadLocation: unknown,
		LicenseConcluded: license, LicenseDeclared: license, CopyrightText: unknown,
		ExternalRefs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + module + "@" + version}},
	}
}

func (d *document) add(main, part spdxPackage) {
	d.Packages = append(d.Packages, part)
	d.relate(main.SPDXID, "CONTAINS", part)
}

func (d *document) relate(from, how string, to spdxPackage) {
	d.Relationships = append(d.Relationships, relationship{from, how, to.SPDXID})
}
