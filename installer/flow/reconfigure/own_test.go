package reconfigure

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"airlift/installer/config"
	"airlift/installer/secrets"
)

// A document without the lines of the keys keeps them, and gets nothing else. The order of arguments alone changes no document, and no
// argument gets another value by it.
func TestKeysStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) config.Arg {
			return config.Arg{Name: rapid.SampledFrom([]string{"v", "profiling", "audit-log-maxage"}).Draw(t, "name"), Value: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")}
		}), 0, 4)
		var stored config.Cluster
		stored.APIServer.ExtraArgs = args.Draw(t, "stored")
		used := rapid.Bool().Draw(t, "encrypted")
		if used {
			if err := secrets.Use(&stored); err != nil {
				t.Fatal(err)
			}
		}
		var own config.Cluster
		own.APIServer.ExtraArgs = rapid.Permutation(stored.APIServer.ExtraArgs).Draw(t, "own order")
		own.APIServer.ExtraVolumes = slices.Clone(stored.APIServer.ExtraVolumes)
		if rapid.Bool().Draw(t, "another document") {
			own.APIServer.ExtraArgs, own.APIServer.ExtraVolumes = args.Draw(t, "own"), nil
		}
		before := own
		before.APIServer.ExtraArgs = slices.Clone(own.APIServer.ExtraArgs)
		keepKeys(&own, &stored)
		keepOrder(&own, &stored)
		if used != secrets.IsUsed(&own) {
			t.Fatalf("encrypted %t, then %+v", used, own.APIServer)
		}
		for _, a := range own.APIServer.ExtraArgs {
			if a.Name == "encryption-provider-config" || a.Name == "encryption-provider-config-automatic-reload" {
				continue
			}
			is, _ := config.LastArg(own.APIServer.ExtraArgs, a.Name)
			was, has := config.LastArg(before.APIServer.ExtraArgs, a.Name)
			if is != was || !has {
				t.Fatalf("%s was %q, and is %q", a.Name, was, is)
			}
		}
		again := own
		keepKeys(&again, &own)
		keepOrder(&again, &own)
		if !reflect.DeepEqual(again, own) {
			t.Fatalf("%+v, then %+v", own, again)
		}
	})
}

// The site's own configuration of the encryption stays as it is in the document.
func TestOtherKeysStay(t *testing.T) {
	var stored, own config.Cluster
	if err := secrets.Use(&stored); err != nil {
		t.Fatal(err)
	}
	own.APIServer.ExtraArgs = config.Args{{Name: encryptionFlag, Value: "/etc/site.yaml"}}
	keepKeys(&own, &stored)
	if value, _ := config.LastArg(own.APIServer.ExtraArgs, encryptionFlag); value != "/etc/site.yaml" || len(own.APIServer.ExtraVolumes) > 0 {
		t.Errorf("%+v", own.APIServer)
	}
}
