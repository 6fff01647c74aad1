//go:build ignore

// Dump prints the feature gates, flags and configuration fields of the kubelet of one
// release, in the words of facts.txt. Kubeletfacts compiles it with that release's packages.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	metricsfeatures "k8s.io/component-base/metrics/features"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	_ "k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/util/codec"
	"sigs.k8s.io/yaml"
)

func main() {
	fields := make(map[string]bool)
	fieldsOf(reflect.TypeFor[kubeletv1.KubeletConfiguration](), "", fields)
	flags(fields)
	gates()
}

// fieldsOf prints a struct's fields, with their types and their paths in the configuration
// file, and adds the paths to known.
func fieldsOf(t reflect.Type, prefix string, known map[string]bool) {
	for i := range t.NumField() {
		path := prefix
		is, inner := typeOf(t.Field(i).Type)
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" { // not inlined
			path += name
			known[path] = true
			fmt.Printf("field %s: %s\n", is, path)
			path += "."
		}
		if inner != nil {
			fieldsOf(inner, path, known)
		}
	}
}

// typeOf names a type, and returns the struct with its fields if it has some.
func typeOf(t reflect.Type) (is string, inner reflect.Type) {
	if t.Kind() == reflect.Pointer {
		return typeOf(t.Elem())
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return t.Name(), nil // it has its own format
	}
	switch t.Kind() {
	case reflect.Struct:
		return "struct", t
	case reflect.Slice:
		is, inner = typeOf(t.Elem())
		return "slice " + is, inner
	case reflect.Map:
		is, _ = typeOf(t.Elem())
		return "map " + is, nil
	}
	return t.Kind().String(), nil
}

// samples are values of flags: the first that a flag accepts and that is not its default
// shows which field it sets.
var samples = []string{
	"true", "false", "7", "7s", "7.7.7.7", "0:memory=7Gi", "a=b:NoSchedule", "a=7", "a=true", "a<7", "a:7",
}

func flags(fields map[string]bool) {
	config, err := options.NewKubeletConfiguration()
	check(err)
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	options.NewKubeletFlags().AddFlags(fs)
	options.AddKubeletConfigFlags(fs, config)
	options.AddGlobalFlags(fs)
	fs.BoolP("help", "h", false, "")
	asWritten := func() (m map[string]any) {
		text, err := codec.EncodeKubeletConfig(config, kubeletv1.SchemeGroupVersion)
		check(err)
		check(yaml.Unmarshal(text, &m))
		return m
	}
	fs.VisitAll(func(f *pflag.Flag) {
		before, field := asWritten(), ""
		for _, sample := range samples {
			if field == "" && f.Value.Set(sample) == nil {
				field = changed(before, asWritten(), "", fields)
			}
		}
		_, kind, _ := strings.Cut(fmt.Sprintf("%T", f.Value), ".")
		if strings.HasPrefix(fmt.Sprintf("%T", f.Value), "*pflag.") {
			kind = f.Value.Type()
		}
		if f.Deprecated != "" && field == "" {
			kind += " deprecated"
			if use := regexp.MustCompile(`--[a-z-]+`).FindAllString(f.Deprecated, -1); use != nil {
				kind += "; use " + strings.Join(use, " or ")
			}
		} else if f.Hidden { // nearly all flags that set a field are deprecated; this one is also hidden
			kind += " deprecated"
		}
		fmt.Printf("flag %s: %s\n", kind, strings.TrimSuffix(f.Name+"="+field, "="))
	})
}

// changed finds the field in which two configurations differ.
func changed(before, after any, path string, fields map[string]bool) string {
	a, _ := before.(map[string]any)
	b, _ := after.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if inner := strings.TrimPrefix(path+"."+name, "."); fields[inner] && !reflect.DeepEqual(a[name], b[name]) {
			return changed(a[name], b[name], inner, fields)
		}
	}
	return path
}

func gates() {
	all := utilfeature.DefaultMutableFeatureGate
	check(logsapi.AddFeatureGates(all))
	check(metricsfeatures.AddFeatureGates(all))
	var needs map[featuregate.Feature][]featuregate.Feature
	if since135, ok := all.(interface {
		Dependencies() map[featuregate.Feature][]featuregate.Feature
	}); ok {
		needs = since135.Dependencies()
	}
	for name, spec := range all.GetAll() {
		is := strings.ToLower(cmp.Or(string(spec.PreRelease), "ga"))
		if spec.Default {
			is += " on"
		}
		if spec.LockToDefault {
			is += " locked"
		}
		var of []string
		for _, need := range needs[name] {
			of = append(of, string(need))
		}
		slices.Sort(of)
		fmt.Printf("gate %s: %s\n", is, strings.TrimSuffix(string(name)+"="+strings.Join(of, ","), "="))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
