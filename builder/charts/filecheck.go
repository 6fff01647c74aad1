package charts

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	helm "helm.sh/helm/v4/pkg/chart/v2"

	"airlift/internal/documents"
	"airlift/internal/fault"
)

// checkFiles returns an error if Helm ignored a part of the files of the chart or of its
// dependencies.
func checkFiles(chart *helm.Chart) error {
	for _, f := range chart.Raw {
		var err error
		switch f.Name {
		case "Chart.yaml", "Chart.lock", "requirements.yaml", "requirements.lock":
			err = checkOne(f.Data)
		case "values.yaml":
			var values map[string]any
			if values, err = decodeValues(f.Data); err == nil && !reflect.DeepEqual(values, chart.Values) {
				err = errors.New("its documents are not read one by one: put a line with --- between them")
			}
		}
		if err != nil {
			return fault.New(fault.Usage, "%s of chart %s: %w", f.Name, described(chart), err).Hint(`correct the file: "helm pull --untar" unpacks a chart; then give its directory`)
		}
	}
	for _, d := range chart.Dependencies() {
		if err := checkFiles(d); err != nil {
			return err
		}
	}
	return nil
}

// checkOne allows no second document.
func checkOne(content []byte) error {
	list, errs := documents.Read(content)
	if len(errs) > 0 {
		return errs[0]
	}
	if list = slices.DeleteFunc(list, documents.Document.Empty); len(list) > 1 {
		return fmt.Errorf("line %d: Helm does not read a second document", list[1].Line)
	}
	return nil
}
