# Installs deskgrid for this user, or updates it, and its worker as a task of the Task Scheduler. It needs no internet.
#
#   powershell -ExecutionPolicy Bypass -File install.ps1 -Join lab.join
#
# -Join FILE: the file with the lab's line; the first time, and only then. -Python PATH: the Python to use [default: that
# of the launcher py, in one of the versions of this kit]. -Prefix FOLDER: where to install; it becomes a link to
# FOLDER-VERSION. -NoService: only install the program. -Options: options of deskgrid worker, such as "--site lab3".
param(
    [string]$Join = "",
    [string]$Python = "",
    [string]$Prefix = (Join-Path $env:LOCALAPPDATA "deskgrid-program"),
    [switch]$NoService,
    [string]$Options = ""
)
$ErrorActionPreference = "Stop"

function Stop-Here([string]$Why) {
    [Console]::Error.WriteLine("install.ps1: $Why")
    exit 1
}

function Get-Minor([string[]]$Command) {
    $Rest = @($Command | Select-Object -Skip 1)
    try { & $Command[0] @Rest -c "import sys; print('%d.%d' % sys.version_info[:2])" 2>$null } catch { "" }
}

$Version = (Get-Content (Join-Path $PSScriptRoot "VERSION") -TotalCount 1).Trim()
$Pythons = @(Get-Content (Join-Path $PSScriptRoot "PYTHONS") | ForEach-Object { $_.Trim() })
$Wheels = Join-Path $PSScriptRoot "wheels"
$New = "$Prefix-$Version"
if ($Join -and -not (Test-Path -LiteralPath $Join)) { Stop-Here "$Join is not there" }
if (Test-Path -LiteralPath $Prefix) {
    $Link = Get-Item -LiteralPath $Prefix -Force
    if ($Link.LinkType -ne "Junction") { Stop-Here "$Prefix is there, and not made by this script: give -Prefix" }
}

# --- a Python for which there are wheels ------------------------------------------------------------------------------

$Command = @()
if ($Python) {
    $Command = @($Python)
    if ($Pythons -notcontains (Get-Minor $Command)) { Stop-Here "$Python is none of Python $Pythons, which this kit is for" }
} else {
    foreach ($Each in @($Pythons | Sort-Object { [version]$_ } -Descending)) {
        if ((Get-Minor @("py", "-$Each")) -eq $Each) { $Command = @("py", "-$Each"); break }
    }
    if (-not $Command) { Stop-Here "there is no Python here of the versions of this kit: $Pythons" }
}

# --- the program, beside the one that may run now ---------------------------------------------------------------------

if (Test-Path -LiteralPath (Join-Path $New ".installed")) {
    Write-Output "deskgrid $Version is in $New already"
} else {
    if (Test-Path -LiteralPath $New) { Remove-Item -LiteralPath $New -Recurse -Force }
    $Rest = @($Command | Select-Object -Skip 1)
    & $Command[0] @Rest -m venv --without-pip $New
    if ($LASTEXITCODE) { Stop-Here "$Command cannot make virtual environments" }
    # pip comes from the kit.
    $Pip = Join-Path (Get-ChildItem -Path $Wheels -Filter "pip-*.whl")[0].FullName "pip"
    & (Join-Path $New "Scripts\python.exe") $Pip --no-cache-dir --disable-pip-version-check install --quiet `
        --no-index --find-links $Wheels "deskgrid==$Version"
    if ($LASTEXITCODE) {
        Remove-Item -LiteralPath $New -Recurse -Force
        Stop-Here "pip failed"
    }
    New-Item -ItemType File -Path (Join-Path $New ".installed") | Out-Null
}
if (Test-Path -LiteralPath $Prefix) { [IO.Directory]::Delete($Prefix) }  # only the link
New-Item -ItemType Junction -Path $Prefix -Target $New | Out-Null
Write-Output "deskgrid $Version is in $Prefix"
if ($NoService) { exit 0 }

# --- the worker -------------------------------------------------------------------------------------------------------

# What was installed here before, of other versions.
$Others = @(Get-ChildItem -Path (Split-Path -Parent $Prefix) -Directory -Filter "$(Split-Path -Leaf $Prefix)-*" |
    Where-Object { $_.FullName -ne $New -and (Test-Path -LiteralPath (Join-Path $_.FullName ".installed")) })

# By this path, which stays the same: the task is to start what is installed later, too.
$Program = Join-Path $Prefix "Scripts\python.exe"
& schtasks /Query /TN deskgrid-worker *> $null
if ($LASTEXITCODE -eq 0) {
    # Others are removed below: until then, the task may run one of them.
    if ($Others) { & $Program -m deskgrid.cli service restart worker --user }
} else {
    $More = @()
    if ($Join) { $More += @("--join", "@$((Resolve-Path -LiteralPath $Join).Path)") }
    & $Program -m deskgrid.cli service install worker --user @More -- @($Options -split " " | Where-Object { $_ })
}
if ($LASTEXITCODE) { exit $LASTEXITCODE }

# What was here before does not run any more.
$Others | Remove-Item -Recurse -Force -ErrorAction SilentlyContinue
