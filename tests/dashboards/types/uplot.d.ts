// vendor/uPlot.iife.min.js, a script that index.html loads before the modules.
declare const uPlot: any;
