{{/* An image of the values: by its digest where one is given, else by its tag. Takes (dict "image" … "chart" .Chart). */}}
{{- define "edgehub.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The value of --controllers: all, without those of the duties that are off. */}}
{{- define "edgehub.controllers" -}}
{{- $duties := .Values.manager.duties -}}
{{- $chosen := list "*" -}}
{{- if not $duties.triggers -}}
{{- $chosen = concat $chosen (list "-servicetopology-endpoints" "-servicetopology-endpointslices") -}}
{{- end -}}
{{- if not $duties.serviceGrids -}}
{{- $chosen = append $chosen "-servicegrid" -}}
{{- end -}}
{{- if not $duties.bindings -}}
{{- $chosen = append $chosen "-configbinding" -}}
{{- end -}}
{{- if not (and $duties.bindings $duties.webhook) -}}
{{- $chosen = append $chosen "-configbindingwebhook" -}}
{{- end -}}
{{- if not $duties.autonomy -}}
{{- $chosen = append $chosen "-autonomy" -}}
{{- end -}}
{{- if not $duties.hubCertificates -}}
{{- $chosen = append $chosen "-hubcertificates" -}}
{{- end -}}
{{- join "," $chosen -}}
{{- end -}}
