package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
	"sigs.k8s.io/yaml/kyaml"

	"airlift/internal/fault"
)

// api is the version of the documents that kubeadm prints with --output, since v1.31. Earlier
// versions of kubeadm print v1alpha2, with the same fields.
const api = "output.kubeadm.k8s.io/v1alpha3"

// Type returns the type of a document that kubeadm prints, too.
func Type(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: api, Kind: kind}
}

// templateFormats are followed by = and a template, or the file that has it.
var templateFormats = []string{"jsonpath", "jsonpath-as-json", "jsonpath-file"}

// goTemplateFormats are kubeadm's output formats that this command does not have. text/template
// calls methods by name, so the linker would have to keep every method of every type
// (TestMethodsAreNotCalledByName).
var goTemplateFormats = []string{"go-template", "go-template-file", "template", "templatefile"}

// Flags are kubeadm's flags for the format of what a command prints.
type Flags struct {
	format           string
	allowMissingKeys bool
}

// Bind adds the flags.
func (o *Flags) Bind(f *pflag.FlagSet) {
	f.StringVarP(&o.format, "output", "o", "text", "text, json, yaml, kyaml, or a template: "+strings.Join(templateFormats, ", ")+", each with =TEMPLATE or =FILE; go-template is not supported")
	f.StringVar(&o.format, "experimental-output", "text", "")
	_ = f.MarkHidden("experimental-output") // the flag's name in kubeadm v1.29; fails only if the flag does not exist
	f.BoolVar(&o.allowMissingKeys, "allow-missing-template-keys", true, "ignore fields in a template that do not exist")
	f.Bool("show-managed-fields", false, "has no effect, as in kubeadm: these objects have no managed fields")
}

// Show makes a command print what read returns: as text, or in the format that the user chose.
func Show[T any](cmd *cobra.Command, read func(cmd *cobra.Command, args []string) (T, error), text func(T, io.Writer) error) *cobra.Command {
	formats := &Flags{}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		show, err := formats.Printer()
		if err != nil {
			return err
		}
		value, err := read(cmd, args)
		if err != nil {
			return err
		}
		if show != nil {
			return show(cmd.OutOrStdout(), value)
		}
		return text(value, cmd.OutOrStdout())
	}
	formats.Bind(cmd.Flags())
	return cmd
}

// A Printer prints one document.
type Printer func(out io.Writer, document any) error

// Printer returns what prints documents in the format, or nil for text.
func (o *Flags) Printer() (Printer, error) {
	show, err := o.printer()
	if show == nil || err != nil {
		return nil, err
	}
	return func(out io.Writer, document any) error { return show(Documents(out), document) }, nil
}

func (o *Flags) printer() (Printer, error) {
	format, template, _ := strings.Cut(o.format, "=")
	switch strings.ToLower(o.format) {
	case "text":
		return nil, nil
	case "json":
		return printJSON, nil
	case "yaml":
		return printYAML(), nil
	case "kyaml":
		return func(out io.Writer, document any) error { return new(kyaml.Encoder).FromObject(document, out) }, nil
	}
	return o.templatePrinter(format, template)
}

// templatePrinter returns a printer that fills in a template.
func (o *Flags) templatePrinter(format, template string) (Printer, error) {
	if slices.Contains(goTemplateFormats, format) {
		return nil, fault.New(fault.Usage, "--output %s: Go templates are not supported", format).Hint("use " + asJSONPath(template))
	}
	if !slices.Contains(templateFormats, format) {
		return nil, fault.New(fault.Usage, "unknown output format %q", o.format).Hint(fault.Choose(format, "the formats are", append([]string{"text", "json", "yaml", "kyaml"}, templateFormats...)))
	}
	if template == "" {
		return nil, fault.New(fault.Usage, "--output %s has no template", format).Hint("write the template after the format: -o " + format + "=…")
	}
	if strings.HasSuffix(format, "file") {
		data, err := os.ReadFile(template)
		if err != nil {
			return nil, fault.New(fault.Usage, "--output %s: %w", o.format, err).Hint("choose a file with a template")
		}
		template = string(data)
	}
	if err := jsonpath.New("output").Parse(template); err != nil {
		return nil, fault.New(fault.Usage, "--output %s: the template is not valid: %w", o.format, err)
	}
	return func(out io.Writer, document any) error {
		value, err := decoded(document)
		if err != nil {
			return err
		}
		path := jsonpath.New("output").AllowMissingKeys(o.allowMissingKeys) // one with a range fails on its second document
		path.EnableJSONOutput(format == "jsonpath-as-json")
		if err = path.Parse(template); err == nil {
			err = path.Execute(out, value)
		}
		if err != nil {
			return fault.New(fault.Usage, "--output %s: filling in the template: %w", o.format, err)
		}
		return nil
	}, nil
}

// goFields matches a Go template that only prints fields. In JSONPath, it has single braces.
var goFields = regexp.MustCompile(`^([^{}']*\{\{ *(\.[A-Za-z]\w*)+ *\}\})+[^{}']*$`)

// asJSONPath returns the option that prints the same as a Go template, or else an example.
func asJSONPath(template string) string {
	if !goFields.MatchString(template) {
		return `-o jsonpath, for example: -o jsonpath='{.kind}{"\n"}'`
	}
	return "-o jsonpath='" + strings.NewReplacer("{{", "{", "}}", "}", "\n", `{"\n"}`).Replace(template) + "'"
}

func printJSON(out io.Writer, document any) error {
	data, err := json.MarshalIndent(document, "", "    ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", data)
	return err
}

// printYAML returns what prints documents as YAML, with a line of three dashes before each
// but the first.
func printYAML() Printer {
	separator := ""
	return func(out io.Writer, document any) error {
		data, err := json.Marshal(document)
		if err != nil {
			return err
		}
		named := Named(out, string(data)) // not in YAML, where a name in quotes ends at the second one
		if data, err = yaml.JSONToYAML([]byte(named)); err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s%s", separator, data)
		separator = "---\n"
		return err
	}
}

// decoded returns a document as templates see it: its JSON, decoded.
func decoded(document any) (value any, err error) {
	data, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	err = json.NewDecoder(bytes.NewReader(data)).Decode(&value)
	return value, err
}
